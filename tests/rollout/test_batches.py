"""Training batches: exactly once per (run, step), fenced by attempt, under one adapter."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.auth import read_token
from shared.clients.base import ServiceProblem
from shared.clients.rollout import RolloutClient
from shared.contracts.inference import AdapterState
from shared.contracts.rollout import BatchEnd, BatchGroup, BatchRequest
from shared.contracts.tasks import Split
from shared.contracts.verifier import Status
from tests.rollout.conftest import Coordinator, eventually, is_true
from tests.rollout.scripted import GOLD, Script

K = 4
GROUPS = 6
DIGEST = "a" * 64


@pytest.fixture
def train_ids(script: Script) -> list[str]:
    return [task.id for task in script.tasks if task.split is Split.TRAIN][:GROUPS]


@pytest.fixture(autouse=True)
def published(script: Script) -> None:
    script.publish("night", 3, DIGEST)


def batch(tasks: list[str], **changes: object) -> BatchRequest:
    fields = {
        "run_id": "night",
        "attempt": 1,
        "step": 4,
        "domain": "shop",
        "policy": "night@3",
        "adapter_digest": DIGEST,
        "task_ids": tasks,
        "k": K,
        "max_tokens": 64,
    }
    return BatchRequest(**{**fields, **changes})


async def lines_of(client: RolloutClient, request: BatchRequest) -> list[BatchGroup | BatchEnd]:
    return [line async for line in client.batch(request)]


async def groups_and_end(client: RolloutClient, request: BatchRequest) -> tuple[list[BatchGroup], BatchEnd]:
    *groups, end = await lines_of(client, request)
    assert isinstance(end, BatchEnd)
    return [group for group in groups if isinstance(group, BatchGroup)], end


async def test_each_group_comes_once_with_what_the_learner_needs_then_the_end(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    async with coordinator.client() as client:
        groups, end = await groups_and_end(client, batch(train_ids))
    assert sorted(group.task_id for group in groups) == sorted(train_ids)
    questions = {task.id: task.question for task in script.tasks}
    for group in groups:
        assert group.prompt_ids == [7, 8, 9]
        assert [sample.sample_index for sample in group.samples] == list(range(K))
        right = int(questions[group.task_id].split()[-2])
        assert [sample.reward for sample in group.samples] == [1.0 if i < right else 0.1 for i in range(K)]
        assert {sample.adapter_digest for sample in group.samples} == {DIGEST}
        assert all(len(sample.completion_ids) == len(sample.logprobs) == 3 for sample in group.samples)
    assert (end.groups, end.replayed_rows) == (GROUPS, 0)
    assert (end.sample_seconds > 0, end.verify_seconds > 0) == (True, True)
    assert {body["top_p"] for body in script.asked} == {1.0}
    assert all(GOLD not in group.model_dump_json() for group in groups)


async def test_a_batch_whose_adapter_loses_its_slot_ends_early_and_goes_on_once_it_is_served_again(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    script.hold, script.held_after = threading.Event(), 2
    async with coordinator.client() as client:
        asking = asyncio.create_task(lines_of(client, batch(train_ids)))
        await eventually(is_true(lambda: script.entered > 2))
        (served,) = script.adapters
        script.adapters = [served.model_copy(update={"state": AdapterState.UNLOADED, "reason": "its slot was needed"})]
        script.engine_faults.extend([404] * 3 * GROUPS)
        script.hold.set()
        lines = await asking
        assert not any(isinstance(line, BatchEnd) for line in lines), "its end would say that the rest is lost"
        with pytest.raises(ServiceProblem, match="its slot was needed") as refused:
            await lines_of(client, batch(train_ids))
        assert refused.value.problem.status == 409
        script.adapters = [served]
        script.engine_faults.clear()
        groups, end = await groups_and_end(client, batch(train_ids))
    assert sorted(group.task_id for group in groups) == sorted(train_ids)
    assert end.lost == {}
    assert all(sample.reward is not None for group in groups for sample in group.samples)


async def test_the_same_batch_again_is_replayed_from_the_ledger_also_by_a_newer_attempt(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    async with coordinator.client() as client:
        first, _ = await groups_and_end(client, batch(train_ids))
        again, end = await groups_and_end(client, batch(train_ids, attempt=2, seed=9))
    assert sorted(map(repr, first)) == sorted(map(repr, again))
    assert end.replayed_rows == GROUPS * K
    assert len(script.asked) == GROUPS


async def test_a_stream_that_is_cut_goes_on_where_it_was(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    script.latency_seconds = 0.1
    async with coordinator.client() as client:
        stream = client.batch(batch(train_ids))
        first = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]  # it is an async generator
        script.latency_seconds = 0.0
        groups, end = await groups_and_end(client, batch(train_ids))
    assert isinstance(first, BatchGroup)
    assert len({group.task_id for group in groups}) == len(groups) == GROUPS
    assert K <= end.replayed_rows < GROUPS * K
    assert first in groups


async def test_an_older_attempt_is_refused_and_one_in_flight_writes_nothing_more(
    coordinator: Coordinator, train_ids: list[str], script: Script, control_db: str
) -> None:
    script.hold = threading.Event()
    async with coordinator.client() as client, coordinator.client() as newer:
        old = client.batch(batch(train_ids[:2]))
        waiting = _collect(old)
        await eventually(is_true(lambda: script.entered == 2))
        replacing = batch(train_ids[2:4], attempt=2)
        new = _collect(newer.batch(replacing))
        await eventually(is_true(lambda: script.entered == 4))
        script.hold.set()
        old_lines, new_lines = await waiting, await new
        with pytest.raises(ServiceProblem) as refused:
            await groups_and_end(client, batch(train_ids[:2]))
        rows = [row async for row in client.rows("batch.night.4")]
    assert old_lines == []  # cut, without an end
    assert isinstance(new_lines[-1], BatchEnd)
    assert refused.value.problem.status == 409
    assert "newer attempt" in refused.value.problem.detail
    assert {row.task_id for row in rows} == set(train_ids[2:4])


async def test_a_newer_attempt_under_another_adapter_replaces_the_steps_rows(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    async with coordinator.client() as client:
        await groups_and_end(client, batch(train_ids))
        script.publish("night", 3, "b" * 64)
        with pytest.raises(ServiceProblem, match="another body") as conflict:
            await groups_and_end(client, batch(train_ids, adapter_digest="b" * 64))
        groups, end = await groups_and_end(client, batch(train_ids, adapter_digest="b" * 64, attempt=2))
        rows = [row async for row in client.rows("batch.night.4")]
    assert conflict.value.problem.status == 409
    assert end.replayed_rows == 0
    assert {sample.adapter_digest for group in groups for sample in group.samples} == {"b" * 64}
    assert {row.adapter_digest for row in rows} == {"b" * 64}
    assert len(rows) == GROUPS * K


async def test_lost_samples_are_unscorable_without_ids_and_asked_again_by_the_same_call(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    script.engine_faults.append(400)
    async with coordinator.client() as client:
        groups, _ = await groups_and_end(client, batch(train_ids[:1]))
        (group,) = groups
        assert [(s.status, s.reward, s.completion_ids) for s in group.samples] == [(Status.UNSCORABLE, None, [])] * K
        again, end = await groups_and_end(client, batch(train_ids[:1]))
    assert [sample.completion_ids for sample in again[0].samples] == [[1, 2, 3]] * K
    assert end.replayed_rows == 0


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"adapter_digest": "c" * 64}, 409, "the trainer expects cccccccccccc"),
        ({"policy": "night@9"}, 409, "sqlclimb serve night@9"),
        ({"task_ids": ["t2s_unknown"]}, 422, "unknown to the author"),
        ({"run_id": "r" * 101}, 422, "100 characters"),
    ],
)
async def test_a_batch_that_cannot_be_right_is_refused(
    coordinator: Coordinator, train_ids: list[str], changes: dict[str, object], status: int, says: str
) -> None:
    async with coordinator.client() as client:
        with pytest.raises(ServiceProblem, match=says) as refused:
            await groups_and_end(client, batch(train_ids, **changes))
    assert refused.value.problem.status == status


async def test_holdout_tasks_repeated_tasks_and_tokens_without_train_are_refused(
    coordinator: Coordinator, train_ids: list[str], script: Script, tokens: Path
) -> None:
    holdout = next(task.id for task in script.tasks if task.split is Split.HOLDOUT)
    async with coordinator.client() as client:
        with pytest.raises(ServiceProblem, match="holdout"):
            await groups_and_end(client, batch([*train_ids, holdout]))
        with pytest.raises(ServiceProblem, match="each task once"):
            await groups_and_end(client, batch([train_ids[0], train_ids[0]]))
    async with RolloutClient(coordinator.url, read_token(tokens, "rollout")) as sampler_only:
        with pytest.raises(ServiceProblem) as forbidden:
            await groups_and_end(sampler_only, batch(train_ids))
    assert forbidden.value.problem.status == 403
    assert script.asked == []


async def test_an_unloaded_adapter_names_the_command_that_serves_it(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    script.publish("dusk", 1, DIGEST, state=AdapterState.UNLOADED)
    async with coordinator.client() as client:
        with pytest.raises(ServiceProblem, match=r"policy dusk@1 is unloaded.*sqlclimb serve dusk@1"):
            await groups_and_end(client, batch(train_ids, policy="dusk@1"))


def _collect(stream: AsyncIterator[BatchGroup | BatchEnd]) -> "asyncio.Task[list[BatchGroup | BatchEnd]]":
    async def collect() -> list[BatchGroup | BatchEnd]:
        return [line async for line in stream]

    return asyncio.create_task(collect())
