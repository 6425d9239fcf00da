"""Samplings over HTTP, against a real ledger: every row once, whatever fails on the way."""

import asyncio
import threading
import time
from collections import Counter

import httpx
import psycopg
import pytest

from shared.clients.base import ServiceProblem
from shared.clients.rollout import RolloutClient
from shared.contracts.rollout import Row, Sampling, SamplingParameters, SamplingRequest, SamplingState
from shared.contracts.tasks import Split
from shared.contracts.verifier import Status
from shared.ids import sha256_hex
from tests.rollout.conftest import TASKS, Coordinator, StartCoordinator, eventually, is_true
from tests.rollout.scripted import BASE, GOLD, ODD_CHARACTERS, Script

K = 4


def request(sampling_id: str = "one", **changes: object) -> SamplingRequest:
    fields = {"sampling_id": sampling_id, "domain": "shop", "parameters": SamplingParameters(k=K, max_tokens=64)}
    return SamplingRequest(**{**fields, **changes})


async def until(client: RolloutClient, sampling_id: str, *states: SamplingState, seconds: float = 30) -> Sampling:
    deadline = time.monotonic() + seconds
    while (sampling := await client.sampling(sampling_id)).state not in states:
        assert time.monotonic() < deadline, sampling
        await asyncio.sleep(0.05)
    return sampling


async def ended(client: RolloutClient, sampling_id: str) -> Sampling:
    return await until(client, sampling_id, SamplingState.DONE, SamplingState.FAILED, SamplingState.CANCELLED)


async def landed(client: RolloutClient, rows: int) -> None:
    async def enough() -> bool:
        return (await client.sampling("one")).progress.landed >= rows

    await eventually(enough)


async def all_rows(client: RolloutClient, sampling_id: str) -> list[Row]:
    return [row async for row in client.rows(sampling_id)]


def assert_each_once(rows: list[Row], tasks: int = TASKS, k: int = K) -> None:
    counts = Counter((row.task_id, row.sample_index) for row in rows)
    assert set(counts.values()) == {1}
    assert len(counts) == tasks * k


async def test_every_sample_lands_as_one_row_with_what_was_sent_and_answered(
    coordinator: Coordinator, script: Script
) -> None:
    async with coordinator.client() as client:
        started = await client.start(request())
        assert started.progress.wanted == TASKS * K
        done = await ended(client, "one")
        rows = await all_rows(client, "one")
    assert (done.state, done.progress.landed, done.progress.lost) == (SamplingState.DONE, TASKS * K, {})
    assert_each_once(rows)
    by_id = {task.id: task for task in script.tasks}
    for row in rows:
        assert row.messages[-1].content == by_id[row.task_id].question
        assert sha256_hex(row.messages[0].content) == row.prompt_hash == done.prompt_hash
        assert (row.served_model, row.adapter_digest) == (BASE, "base")
        assert row.split is by_id[row.task_id].split
        assert (row.prompt_token_ids, row.token_ids, row.logprobs) == ([7, 8, 9], [1, 2, 3], [-0.5] * 3)
        right = int(by_id[row.task_id].question.split()[-2])
        assert (row.status is Status.MATCH) == (row.sample_index < right)
        assert row.reply.endswith("SELECT 1" if row.status is Status.MATCH else ODD_CHARACTERS)
        assert row.reward == (1.0 if row.status is Status.MATCH else 0.1)
    assert {row.reply for row in rows} == script.judged, "the verdict is on the text that is kept"


async def test_the_engine_is_asked_once_a_group_with_ids_and_logprobs_and_top_k_off(
    coordinator: Coordinator, script: Script
) -> None:
    async with coordinator.client() as client:
        await client.start(request())
        await ended(client, "one")
    assert len(script.asked) == TASKS
    body = script.asked[0]
    wanted = {"n": K, "top_k": -1, "logprobs": True, "return_token_ids": True, "temperature": 0.7, "top_p": 0.95}
    assert {name: body[name] for name in wanted} == wanted
    assert all("seed" not in asked for asked in script.asked)  # it kills vLLM's CPU engine


async def test_no_gold_is_sent_to_the_engine_or_stored_or_answered(
    coordinator: Coordinator, script: Script, control_db: str
) -> None:
    async with coordinator.client() as client:
        await client.start(request())
        await ended(client, "one")
        answered = "".join(row.model_dump_json() for row in await all_rows(client, "one"))
    with psycopg.connect(control_db) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'rollout'").fetchall()
        stored = "".join(
            str(connection.execute(f"SELECT t::text FROM rollout.{name} t").fetchall()) for (name,) in tables
        )
    assert GOLD not in answered + stored + str(script.asked)
    assert "Question 3" in stored  # the search would have found it


async def test_posting_again_asks_nothing_twice_and_another_body_is_a_conflict(
    coordinator: Coordinator, script: Script
) -> None:
    async with coordinator.client() as client:
        await client.start(request())
        await ended(client, "one")
        again = await client.start(request())
        assert again.state is SamplingState.DONE
        assert len(script.asked) == TASKS
        with pytest.raises(ServiceProblem, match="`parameters`") as refused:
            await client.start(request(parameters=SamplingParameters(k=2, max_tokens=64)))
    assert refused.value.problem.status == 409


async def test_a_new_coordinator_resumes_by_itself_and_asks_only_what_is_missing(
    start_coordinator: StartCoordinator, script: Script
) -> None:
    script.hold, script.held_after = threading.Event(), 2
    with start_coordinator() as first:
        async with first.client() as client:
            await client.start(request())
            await landed(client, 2 * K)
    script.hold.set()
    with start_coordinator() as second:
        async with second.client() as client:
            done = await ended(client, "one")
            rows = await all_rows(client, "one")
    assert done.state is SamplingState.DONE
    assert_each_once(rows)
    assert len(script.asked) <= TASKS + 4  # at most the groups in flight were asked twice


async def test_a_group_that_fails_is_rolled_again_and_counted(coordinator: Coordinator, script: Script) -> None:
    script.engine_faults.extend([500, "no-ids", 429])
    async with coordinator.client() as client:
        await client.start(request())
        done = await ended(client, "one")
        rows = await all_rows(client, "one")
    assert_each_once(rows)
    assert (done.progress.rerolled, done.progress.lost) == (3 * K, {})


async def test_samples_of_another_adapter_are_refused_and_never_stored(
    coordinator: Coordinator, script: Script
) -> None:
    script.engine_faults.extend(["wrong-adapter"] * 3)  # one try and two re-rolls of one task
    async with coordinator.client() as client:
        chosen = [script.tasks[3].id]
        await client.start(request(task_ids=chosen))
        failed = await ended(client, "one")
        assert (failed.state, failed.progress.lost) == (SamplingState.FAILED, {"adapter_mismatch": K})
        assert "adapter_mismatch" in failed.error
        assert await all_rows(client, "one") == []
        await client.start(request(task_ids=chosen))  # asked again: the lost samples land
        done = await ended(client, "one")
        assert (done.state, done.progress.landed, done.progress.lost) == (SamplingState.DONE, K, {})


async def test_what_the_engine_refuses_is_lost_at_once_and_the_rest_lands(
    coordinator: Coordinator, script: Script
) -> None:
    script.engine_faults.append(400)
    async with coordinator.client() as client:
        await client.start(request())
        done = await ended(client, "one")
    assert (done.state, done.progress.landed) == (SamplingState.DONE, (TASKS - 1) * K)
    assert (done.progress.lost, done.progress.rerolled) == ({"engine_refused": K}, 0)


async def test_it_pauses_with_the_reason_while_the_engine_is_away_and_resumes_by_itself(
    coordinator: Coordinator, script: Script
) -> None:
    script.engine_up = False
    async with coordinator.client() as client:
        await client.start(request())
        paused = await until(client, "one", SamplingState.PAUSED)
        assert "inference: not ready" in paused.error
        script.engine_up = True
        done = await ended(client, "one")
        rows = await all_rows(client, "one")
    assert_each_once(rows)
    assert (done.state, done.error, done.progress.lost) == (SamplingState.DONE, "", {})


async def test_an_outage_on_the_way_loses_nothing(coordinator: Coordinator, script: Script) -> None:
    script.down_after = 2
    async with coordinator.client() as client:
        await client.start(request())
        await until(client, "one", SamplingState.PAUSED)
        script.engine_up = True
        done = await ended(client, "one")
        rows = await all_rows(client, "one")
    assert_each_once(rows)
    assert done.progress.lost == {}


async def test_replies_wait_for_the_verifier_and_are_not_sampled_again(
    coordinator: Coordinator, script: Script
) -> None:
    script.hold = threading.Event()
    async with coordinator.client() as client:
        await client.start(request(task_ids=[script.tasks[3].id]))
        await eventually(is_true(lambda: script.entered == 1))
        script.verifier_up = False
        script.hold.set()
        await eventually(is_true(lambda: bool(script.asked)))
        script.verifier_up = True
        await ended(client, "one")
        rows = await all_rows(client, "one")
    assert len(script.asked) == 1
    assert [row.status for row in rows].count(Status.UNSCORABLE) == 0


async def test_a_lost_sandbox_is_made_again(coordinator: Coordinator, script: Script) -> None:
    script.hold = threading.Event()
    async with coordinator.client() as client:
        await client.start(request())
        await eventually(is_true(lambda: script.entered > 0))
        script.sandboxes.clear()
        script.hold.set()
        await ended(client, "one")
        assert {row.status for row in await all_rows(client, "one")} == {Status.MATCH, Status.MISMATCH}


async def test_unscorable_is_asked_again_then_stored_without_reward(coordinator: Coordinator, script: Script) -> None:
    script.unscorable = 3 * K  # every verdict of the first group, twice asked again
    async with coordinator.client() as client:
        await client.start(request(task_ids=[script.tasks[3].id]))
        await ended(client, "one")
        rows = await all_rows(client, "one")
    assert {(row.status, row.reward) for row in rows} == {(Status.UNSCORABLE, None)}
    assert len(script.asked) == 1


async def test_cancel_keeps_rows_and_the_same_post_goes_on(coordinator: Coordinator, script: Script) -> None:
    script.hold, script.held_after = threading.Event(), 2
    async with coordinator.client() as client:
        await client.start(request())
        await landed(client, 2 * K)
        cancelled = await client.cancel("one")
        assert cancelled.state is SamplingState.CANCELLED
        assert cancelled.progress.landed == 2 * K
        assert len(await all_rows(client, "one")) == cancelled.progress.landed
        script.hold.set()
        await client.start(request())
        assert (await ended(client, "one")).state is SamplingState.DONE
        assert_each_once(await all_rows(client, "one"))


async def test_events_tell_progress_until_the_end(coordinator: Coordinator, script: Script) -> None:
    script.latency_seconds = 0.3
    async with coordinator.client() as client:
        await client.start(request())
    headers = {"authorization": f"Bearer {coordinator.token}"}
    async with (
        httpx.AsyncClient(base_url=coordinator.url, headers=headers) as http,
        http.stream("GET", "/v1/samplings/one/events") as events,
    ):
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = [line async for line in events.aiter_lines() if line.startswith("data: ")]
    seen = [Sampling.model_validate_json(line.removeprefix("data: ")) for line in lines]
    counts = [sampling.progress.landed for sampling in seen]
    assert counts == sorted(counts)
    assert (counts[-1], seen[-1].state) == (TASKS * K, SamplingState.DONE)
    assert len(seen) >= 2


async def test_a_limit_asks_the_same_tasks_under_any_seed_and_a_part_of_a_larger_limit(
    coordinator: Coordinator, script: Script
) -> None:
    asked = {}
    async with coordinator.client() as client:
        for name, limit, seed in (("a", 5, 0), ("b", 5, 1), ("c", 8, 0)):
            parameters = SamplingParameters(k=1, max_tokens=8, seed=seed)
            await client.start(request(name, limit=limit, parameters=parameters))
            await ended(client, name)
            asked[name] = {row.task_id for row in await all_rows(client, name)}
    assert asked["a"] == asked["b"] < asked["c"]


async def test_a_fold_and_a_split_choose_tasks(coordinator: Coordinator, script: Script) -> None:
    wanted = {task.id for task in script.tasks if task.split is Split.TRAIN and task.provenance.fold == 1}
    async with coordinator.client() as client:
        await client.start(request(split=Split.TRAIN, fold=1))
        await ended(client, "one")
        assert {row.task_id for row in await all_rows(client, "one")} == wanted


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"policy": "night-1@40"}, 409, "sqlclimb serve night-1@40"),
        ({"policy": "night-1"}, 422, "expected `base` or"),
        ({"domain": "nowhere"}, 422, "no domain"),
        ({"task_ids": []}, 422, "at least one task"),
        ({"task_ids": ["t2s_unknown"]}, 422, "t2s_unknown"),
        ({"sampling_id": "batch.x.1"}, 422, "POST /v1/batches"),
    ],
)
async def test_what_cannot_be_sampled_is_refused_with_a_sentence(
    coordinator: Coordinator, changes: dict[str, object], status: int, says: str
) -> None:
    async with coordinator.client() as client:
        with pytest.raises(ServiceProblem, match=says) as refused:
            await client.start(SamplingRequest(**{**request().model_dump(), **changes}))
        assert refused.value.problem.status == status
        with pytest.raises(ServiceProblem) as missing:
            await client.sampling(str(changes.get("sampling_id", "one")))
        assert missing.value.problem.status == 404


async def test_an_adapter_policy_is_sampled_under_its_served_name(coordinator: Coordinator, script: Script) -> None:
    script.publish("night", 3, "a" * 64)
    async with coordinator.client() as client:
        await client.start(request(policy="night@3"))
        done = await ended(client, "one")
        rows = await all_rows(client, "one")
    assert (done.policy_name, done.adapter_digest) == ("night-s3-aaaaaaaa", "a" * 64)
    assert {(row.served_model, row.adapter_digest) for row in rows} == {("night-s3-aaaaaaaa", "a" * 64)}


ROUTES = [
    ("POST", "/v1/samplings"),
    ("GET", "/v1/samplings/one"),
    ("DELETE", "/v1/samplings/one"),
    ("GET", "/v1/samplings/one/events"),
    ("GET", "/v1/samplings/one/rows"),
    ("GET", "/v1/reports?sampling=one"),
    ("POST", "/v1/bands"),
    ("GET", "/v1/bands/one"),
    ("POST", "/v1/deltas"),
    ("POST", "/v1/batches"),
]


async def test_every_route_asks_for_a_token(coordinator: Coordinator) -> None:
    async with httpx.AsyncClient(base_url=coordinator.url) as http:
        for method, path in ROUTES:
            for headers in ({}, {"authorization": "Bearer wrong"}):
                answer = await http.request(method, path, json={}, headers=headers)
                assert answer.status_code == 401, (method, path)


async def test_a_typo_is_named(coordinator: Coordinator) -> None:
    headers = {"authorization": f"Bearer {coordinator.token}"}
    async with httpx.AsyncClient(base_url=coordinator.url, headers=headers) as http:
        answer = await http.post("/v1/samplings", json={"sampling_id": "one", "domian": "shop"})
    assert answer.status_code == 422
    assert {error["field"] for error in answer.json()["errors"]} == {"domain", "domian"}


async def test_ready_names_the_neighbour_that_is_not(coordinator: Coordinator, script: Script) -> None:
    script.verifier_up = False
    async with coordinator.client() as client:
        readiness = await client.readiness()
    assert not readiness.ready
    assert {name for name, state in readiness.checks.items() if state != "ok"} == {"verifier"}
    assert "ray" in readiness.versions
