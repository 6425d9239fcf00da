"""A training batch does not wait for its slowest samples; what is left out is absent, counted, and never scored 0."""

import time
from functools import partial
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rollout.batches.stragglers import BatchClock, StragglerRule
from shared.contracts.tasks import Split
from tests.rollout.conftest import Coordinator, eventually, is_true
from tests.rollout.scripted import Script
from tests.rollout.test_batches import DIGEST, K, batch, groups_and_end, published

__all__ = ["published"]  # fixture

GROUPS = 10
SLOW_SECONDS = 30.0


class Time:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rest_has_a_share_of_the_quorums_time_and_at_least_the_shortest_grace() -> None:
    now = Time()
    clock = BatchClock(StragglerRule(0.8, 0.25, 5.0), wanted=10, clock=now)
    now.now += 40
    clock.settle(7)
    assert clock.seconds_left() is None
    clock.settle(1)
    assert clock.seconds_left() == 10.0
    now.now += 4
    clock.settle(1)
    assert clock.seconds_left() == 6.0
    quick = BatchClock(StragglerRule(0.8, 0.25, 5.0), wanted=10, clock=now)
    quick.settle(9)
    assert quick.seconds_left() == 5.0


def test_the_grace_begins_after_a_pause_not_before_it() -> None:
    now = Time()
    clock = BatchClock(StragglerRule(0.5, 0.25, 5.0), wanted=2, clock=now)
    clock.settle(1)
    now.now += 60
    clock.hold()
    now.now += 2
    assert clock.seconds_left() == 3.0


@given(st.floats(0.01, 1), st.floats(0, 2), st.lists(st.tuples(st.floats(0, 50), st.integers(1, 8)), min_size=1))
def test_a_batch_is_cut_at_most_a_share_after_its_quorum_and_never_before_it(
    quorum: float, share: float, steps: list[tuple[float, int]]
) -> None:
    now, wanted = Time(), sum(samples for _, samples in steps)
    clock = BatchClock(StragglerRule(quorum, share, 0.0), wanted, now)
    settled = 0
    for seconds, samples in steps:
        now.now += seconds
        clock.settle(samples)
        settled += samples
        left = clock.seconds_left()
        assert (left is None) == (settled < quorum * wanted)
        assert left is None or left <= share * (now.now - 100.0) + 1e-9


@pytest.fixture
def settings_changes() -> dict[str, object]:
    return {"groups_in_flight": 12, "straggler_grace_seconds": 0.5}


@pytest.fixture
def train_ids(script: Script) -> list[str]:
    return [task.id for task in script.tasks if task.split is Split.TRAIN][:GROUPS]


async def test_single_slow_samples_are_left_out_and_their_groups_other_samples_are_kept(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    slow = {task.question for task in script.tasks if task.id in train_ids[:3]}
    script.slow, script.slow_seconds = lambda question, place: question in slow and place == 1, SLOW_SECONDS
    started = time.monotonic()
    async with coordinator.client() as client:
        groups, end = await groups_and_end(client, batch(train_ids))
        seconds = time.monotonic() - started
        rows = [row async for row in client.rows("batch.night.4")]
        await eventually(is_true(lambda: script.in_engine == 0), seconds=5)  # the engine was told to stop
        script.slow = lambda question, place: False
        again, again_end = await groups_and_end(client, batch(train_ids))
    assert seconds < SLOW_SECONDS / 2
    assert end.lost == {"straggler": 3}
    by_task = {group.task_id: group for group in groups}
    for task_id in train_ids:
        rewards = [sample.reward for sample in by_task[task_id].samples]
        assert [reward is None for reward in rewards] == [task_id in train_ids[:3] and i == 1 for i in range(K)]
        assert 0.0 not in rewards
    assert len(rows) == GROUPS * K - 3
    assert again_end.replayed_rows == GROUPS * K - 3  # a resumed step asks once more for what was left out
    assert all(sample.completion_ids for group in again for sample in group.samples)
    assert [body["n"] for body in script.asked[GROUPS:]] == [1, 1, 1]


async def test_a_whole_group_that_is_slow_is_left_out(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    (question,) = (task.question for task in script.tasks if task.id == train_ids[4])
    script.slow, script.slow_seconds = lambda asked, place: asked == question, SLOW_SECONDS
    async with coordinator.client() as client:
        groups, end = await groups_and_end(client, batch(train_ids))
    lost = [sample for group in groups for sample in group.samples if not sample.completion_ids]
    assert (end.lost, end.groups) == ({"straggler": K}, GROUPS)
    assert [(sample.reward, sample.adapter_digest) for sample in lost] == [(None, "")] * K
    assert {s.adapter_digest for g in groups for s in g.samples if s.completion_ids} == {DIGEST}


async def test_a_group_that_waits_to_be_asked_again_is_left_out_too(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    script.busy = {task.question for task in script.tasks if task.id == train_ids[7]}
    async with coordinator.client() as client:
        _, end = await groups_and_end(client, batch(train_ids))
        sampling = await client.sampling("batch.night.4")
    assert (sum(end.lost.values()), end.groups) == (K, GROUPS)
    assert end.lost.keys() <= {"engine_busy", "straggler"}  # cut while it waited, or while it was asked again
    assert sampling.progress.landed == (GROUPS - 1) * K


def last_sample_of(questions: set[str], question: str, place: int) -> bool:
    return question in questions and place == K - 1


@pytest.mark.slow
async def test_one_slow_sample_in_twenty_costs_a_batch_less_than_half_its_time(
    coordinator: Coordinator, script: Script
) -> None:
    """A4 of issue 5 with slow samples inside groups; benchmarks/straggling_batch.py has whole slow groups, on Ray."""
    train = [task for task in script.tasks if task.split is Split.TRAIN]
    slow = {task.question for task in train[::5]}  # one sample of three groups: 6 % of the batch
    script.stream_seconds, script.slow_seconds = 4.0, 200.0
    seconds: dict[str, list[float]] = {"clean": [], "straggling": []}
    async with coordinator.client() as client:
        for step in range(6):
            name = "straggling" if step % 2 else "clean"
            script.slow = partial(last_sample_of, slow if name == "straggling" else set())
            started = time.monotonic()
            groups, end = await groups_and_end(client, batch([task.id for task in train], step=step))
            seconds[name].append(time.monotonic() - started)
            assert end.lost == ({"straggler": 3} if step % 2 else {})
            assert 0.0 not in {sample.reward for group in groups for sample in group.samples}
    print({name: [round(value, 2) for value in values] for name, values in seconds.items()})
    assert median(seconds["straggling"]) < 1.5 * median(seconds["clean"])
