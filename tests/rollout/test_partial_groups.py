"""A group that comes in part: what ended is kept, and only the rest is asked for again."""

import pytest

from services.rollout.worker import groups
from shared.contracts.rollout import SamplingState
from tests.rollout.conftest import Coordinator
from tests.rollout.scripted import Script
from tests.rollout.test_samplings import K, all_rows, assert_each_once, ended, landed, request


@pytest.mark.parametrize("fault", ["broken-stream", "abort", "empty"])
async def test_what_the_engine_did_not_finish_is_asked_for_again_and_nothing_else(
    coordinator: Coordinator, script: Script, fault: str
) -> None:
    script.engine_faults.append(fault)
    async with coordinator.client() as client:
        await client.start(request(task_ids=[script.tasks[3].id]))
        done = await ended(client, "one")
        rows = await all_rows(client, "one")
    assert_each_once(rows, tasks=1)
    assert (done.state, done.progress.rerolled, done.progress.lost) == (SamplingState.DONE, 1, {})
    assert [body["n"] for body in script.asked] == [K, 1]


async def test_replies_that_ended_before_the_budget_did_are_kept_and_the_others_counted_as_timeouts(
    coordinator: Coordinator, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MINIMUM_TIMEOUT_SECONDS", 0.6)
    monkeypatch.setattr(groups, "SLOWEST_TOKENS_PER_SECOND", 1e6)
    script.slow, script.slow_seconds = lambda question, place: place == 0, 30.0
    async with coordinator.client() as client:
        await client.start(request(task_ids=[script.tasks[3].id]))
        done = await ended(client, "one")
        rows = await all_rows(client, "one")
    assert {row.sample_index for row in rows} == {1, 2, 3}
    assert all(row.reward is not None for row in rows)
    assert (done.state, done.progress.lost, done.progress.rerolled) == (SamplingState.DONE, {"timeout": 1}, 1)
    assert [body["n"] for body in script.asked] == [K, 1]


async def test_rows_of_a_group_with_one_slow_reply_land_before_it_ends(
    coordinator: Coordinator, script: Script
) -> None:
    script.slow, script.slow_seconds = lambda question, place: place == 2, 30.0
    async with coordinator.client() as client:
        await client.start(request(task_ids=[script.tasks[3].id]))
        await landed(client, K - 1)
        cancelled = await client.cancel("one")
        assert cancelled.progress.landed == K - 1


async def test_a_busy_gateway_is_waited_for_and_no_group_is_given_up_for_it(
    coordinator: Coordinator, script: Script
) -> None:
    script.engine_faults.extend([429] * 8)  # four times the retries a group has
    async with coordinator.client() as client:
        await client.start(request(task_ids=[script.tasks[3].id]))
        done = await ended(client, "one")
    assert (done.progress.landed, done.progress.lost, done.progress.rerolled) == (K, {}, 8 * K)


async def test_a_token_that_the_gateway_does_not_take_is_no_fault_of_the_group(
    coordinator: Coordinator, script: Script
) -> None:
    script.engine_faults.extend([401, 403])
    async with coordinator.client() as client:
        await client.start(request(task_ids=[script.tasks[3].id]))
        done = await ended(client, "one")
    assert (done.progress.landed, done.progress.lost, done.progress.rerolled) == (K, {}, 2 * K)
