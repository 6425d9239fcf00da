"""Sampling, batches and measuring through the whole real stack: vLLM, the gateway, sandboxed Postgres, Ray."""

import asyncio
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator

import httpx
import psutil
import pytest

from cli.stack.home import StackHome
from shared.clients.author import AuthorClient
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.rollout import RolloutClient
from shared.clients.verifier import VerifierClient
from shared.contracts.measuring import BandRequest, DeltaRequest, DeltaVerdict
from shared.contracts.rollout import (
    BatchEnd,
    BatchGroup,
    BatchRequest,
    Row,
    Sampling,
    SamplingParameters,
    SamplingRequest,
    SamplingState,
)
from shared.contracts.tasks import Split
from shared.contracts.verifier import Status
from tests.rollout.killing import faults_of, kill, victims, wrong_verdicts
from tests.stack import StackHandle

K = 4
TASKS = 24
SECONDS = 180


@pytest.fixture
async def client(stack: StackHandle) -> AsyncIterator[RolloutClient]:
    async with RolloutClient(stack.urls["rollout"], stack.token("admin"), timeout_seconds=30) as opened:
        yield opened


def request(stack: StackHandle, sampling_id: str, **changes: object) -> SamplingRequest:
    state = StackHome(stack.home).load()
    assert state is not None
    assert state.model is not None
    fields = {
        "sampling_id": sampling_id,
        "domain": stack.domain,
        "regime": state.model.regime,
        "parameters": SamplingParameters(k=K, max_tokens=64),
        "split": Split.TRAIN,
        "limit": TASKS,
    }
    return SamplingRequest.model_validate({**fields, **changes})


async def ended(client: RolloutClient, sampling_id: str) -> Sampling:
    """The sampling at its end; a coordinator that was killed may be away meanwhile."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            sampling = await client.sampling(sampling_id)
            if sampling.state not in (SamplingState.RUNNING, SamplingState.PAUSED):
                return sampling
        except (ServiceProblem, ServiceUnreachable) as error:
            assert not isinstance(error, ServiceProblem) or error.problem.status >= 500, error
        assert time.monotonic() < deadline, f"sampling {sampling_id} did not end in {SECONDS} s"
        await asyncio.sleep(0.2)


async def rows_of(client: RolloutClient, sampling_id: str) -> list[Row]:
    return [row async for row in client.rows(sampling_id)]


def assert_each_once(rows: list[Row], tasks: int = TASKS) -> None:
    counts = Counter((row.task_id, row.sample_index) for row in rows)
    assert set(counts.values()) == {1}
    assert len(counts) == tasks * K


async def test_a_sampling_lands_every_row_with_ids_logprobs_and_a_verdict(
    stack: StackHandle, client: RolloutClient
) -> None:
    await client.start(request(stack, "stack-all"))
    done = await ended(client, "stack-all")
    rows = await rows_of(client, "stack-all")
    assert (done.state, done.progress.lost) == (SamplingState.DONE, {})
    assert_each_once(rows)
    for row in rows:
        assert row.served_model == done.policy_name
        assert len(row.token_ids) == len(row.logprobs) > 0
        assert all(logprob <= 0 for logprob in row.logprobs)
        assert row.prompt_token_ids
        assert (row.reward is None) == (row.status is Status.UNSCORABLE)
    assert Status.MATCH in {row.status for row in rows}  # the small policy can do some of them
    assert Status.UNSCORABLE not in {row.status for row in rows}


@pytest.mark.parametrize(
    "parts",
    [pytest.param(("worker", "sandbox"), marks=pytest.mark.slow), ("coordinator",), ("proxy", "inference")],
    ids=lambda parts: "-and-".join(parts),
)
async def test_killed_on_the_way_it_goes_on_and_loses_nothing(
    stack: StackHandle, client: RolloutClient, parts: tuple[str, ...]
) -> None:
    """All parts in 20 rounds: `.ci/rollout_kills.py`."""
    name = f"stack-kill-{parts[0]}"
    draw = random.Random(name)
    await client.start(request(stack, name, limit=6 * TASKS))
    chosen: list[list[psutil.Process]] = [[]]
    while (found := await client.sampling(name)).progress.landed < 2 * K or not all(chosen):
        assert found.state is SamplingState.RUNNING
        chosen = [victims(StackHome(stack.home), part, draw) for part in parts]
    assert 0 not in [kill(processes) for processes in chosen]
    done = await ended(client, name)
    assert (done.state, done.progress.lost) == (SamplingState.DONE, {})
    rows = await rows_of(client, name)
    assert faults_of(rows, done.progress.wanted // K, K) == []
    async with (
        AuthorClient(stack.urls["author"], stack.token("admin")) as author,
        VerifierClient(stack.urls["verifier"], stack.token("admin")) as verifier,
    ):
        assert await wrong_verdicts(rows, stack.domain, author, verifier) == []


async def test_a_batch_comes_exactly_once_and_an_older_attempt_is_fenced(
    stack: StackHandle, client: RolloutClient
) -> None:
    async with AuthorClient(stack.urls["author"], stack.token("admin")) as author:
        tasks = (await author.tasks(stack.domain, Split.TRAIN)).tasks[:4]
        holdout = (await author.tasks(stack.domain, Split.HOLDOUT)).tasks[0]
    asked = BatchRequest(
        run_id="stack-batch",
        attempt=1,
        step=0,
        domain=stack.domain,
        policy="base",
        adapter_digest="base",
        regime=request(stack, "x").regime,
        task_ids=[task.id for task in tasks],
        k=K,
        max_tokens=64,
    )
    first, end = await batch(client, asked)
    again, replayed = await batch(client, asked.model_copy(update={"attempt": 2}))
    assert end.replayed_rows == 0
    assert replayed.replayed_rows == len(tasks) * K
    assert sorted(map(repr, first)) == sorted(map(repr, again))
    assert {group.task_id for group in first} == set(asked.task_ids)
    with pytest.raises(ServiceProblem) as fenced:
        await batch(client, asked)
    assert fenced.value.problem.status == 409
    with pytest.raises(ServiceProblem, match="holdout"):
        await batch(client, asked.model_copy(update={"attempt": 2, "step": 1, "task_ids": [holdout.id]}))


async def batch(client: RolloutClient, asked: BatchRequest) -> tuple[list[BatchGroup], BatchEnd]:
    lines = [line async for line in client.batch(asked)]
    end = lines.pop()
    assert isinstance(end, BatchEnd)
    return [line for line in lines if isinstance(line, BatchGroup)], end


async def test_report_band_and_delta_are_what_the_rows_say(stack: StackHandle, client: RolloutClient) -> None:
    for name in ("stack-a", "stack-b"):
        await client.start(request(stack, name))
    for name in ("stack-a", "stack-b"):
        assert (await ended(client, name)).state is SamplingState.DONE
    a, b = passes(await rows_of(client, "stack-a")), passes(await rows_of(client, "stack-b"))

    line = (await client.report("stack-a")).lines[0]
    assert (line.tasks, line.rows) == (TASKS, TASKS * K)
    assert line.pass_at_1.value == pytest.approx(sum(a.values()) / K / TASKS)
    at_2 = [1 - math.comb(K - c, 2) / math.comb(K, 2) for c in a.values()]
    assert line.pass_at_1.value <= sum(at_2) / TASKS <= line.pass_at_k.value == sum(c > 0 for c in a.values()) / TASKS
    assert line.pass_hat_k.value == sum(c == K for c in a.values()) / TASKS

    inside = {task for task, c in a.items() if 0.2 <= c / K <= 0.8}
    if inside:
        band = await client.cut_band(BandRequest(band_id="stack-band", sampling_id="stack-a", low=0.2, high=0.8))
        assert set(band.task_ids) == inside

    delta = await client.delta(DeltaRequest(before=["stack-a"], after=["stack-b"]))
    change = sum(b[task] - a[task] for task in a) / K / TASKS
    assert delta.lines[0].delta.value == pytest.approx(change)
    holds_zero = delta.lines[0].delta.low <= 0 <= delta.lines[0].delta.high
    assert (delta.verdict is DeltaVerdict.NO_CHANGE_DETECTED) == holds_zero
    stack.cli("report", "stack-a")
    stack.cli("delta", "--before", "stack-a", "--after", "stack-b")


def passes(rows: list[Row]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.task_id] += row.status is Status.MATCH
    return dict(counts)


async def test_every_service_of_the_ray_app_answers_what_the_others_answer(stack: StackHandle) -> None:
    async with httpx.AsyncClient(base_url=stack.urls["rollout"]) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok", "service": "rollout"}
        assert (await http.get("/readyz")).json()["versions"]["ray"].startswith("2.60")
        assert "sqlclimb_rollout_rows_total" in (await http.get("/metrics")).text
        assert "/v1/batches" in (await http.get("/openapi.json")).json()["paths"]
