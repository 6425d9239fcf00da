"""How many groups are with the engine follows the engine's own queue and cache."""

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rollout.samplings import concurrency
from services.rollout.samplings.concurrency import (
    CROWDED_KV,
    INCREASE,
    LOOKS,
    QUEUED_SHARE,
    ConcurrencyLimit,
    crowded,
    next_limit,
    steady,
)
from shared.contracts.inference import Pressure
from shared.contracts.rollout import SamplingState
from tests.rollout.conftest import Coordinator
from tests.rollout.scripted import Script
from tests.rollout.test_samplings import all_rows, assert_each_once, ended, request


def pressure(running: int = 0, waiting: int = 0, kv_use: float = 0.0, serving: int = 1) -> Pressure:
    return Pressure(replicas=[], serving=serving, running=running, waiting=waiting, kv_use=kv_use)


PRESSURES = st.builds(
    pressure, st.integers(0, 500), st.integers(0, 500), st.floats(0, 1, allow_nan=False), st.integers(0, 3)
)


@given(
    st.integers(1, 64),
    st.integers(0, 64),
    st.integers(1, 64),
    st.lists(PRESSURES, min_size=1, max_size=3),
    st.booleans(),
)
def test_the_limit_stays_in_its_bounds_and_moves_the_right_way(
    limit: int, in_flight: int, most: int, looks: list[Pressure], refused: bool
) -> None:
    limit = min(limit, most)
    found = next_limit(limit, in_flight, most, looks, refused)
    assert 1 <= found <= most
    if refused or crowded(steady(looks)):
        assert found <= limit
        assert in_flight <= limit or found == limit  # the last fall does not show yet
    else:
        assert found >= limit
    if in_flight < limit and not refused and len(looks) < LOOKS:
        assert found == limit


@settings(deadline=None)
@given(st.integers(8, 2000), st.integers(1, 16), st.integers(1, 64))
def test_it_settles_where_the_engine_is_full_and_its_queue_short(capacity: int, k: int, most: int) -> None:
    """An engine that runs `capacity` sequences at once; groups of k always wait to be asked."""
    limit, seen = most, []
    for _ in range(120):
        engine = pressure(running=min(capacity, limit * k), waiting=max(0, limit * k - capacity))
        limit = next_limit(limit, limit, most, [engine] * LOOKS, refused=False)
        seen.append(limit)
    settled = seen[-64:]
    full_by = min(most, capacity // k)
    assert min(settled) >= min(0.7 * full_by, full_by - 1) or min(settled) == 1
    assert max(settled) * k <= (1 + QUEUED_SHARE + INCREASE) * capacity + 2 * k or max(settled) == 1


def test_groups_that_have_just_come_are_no_crowd() -> None:
    arriving, running = pressure(running=0, waiting=40), pressure(running=40)
    for looks in ([arriving], [arriving, arriving], [running, running, arriving], [arriving, running, running]):
        assert next_limit(5, 5, 32, looks, refused=False) >= 5


def test_a_full_cache_is_crowding_even_without_a_queue() -> None:
    full = [pressure(running=100, kv_use=CROWDED_KV + 0.01)] * LOOKS
    assert next_limit(32, 32, 32, full, refused=False) == 24
    assert next_limit(1, 1, 32, full, refused=False) == 1


async def test_a_lowered_limit_lets_what_is_in_flight_end_and_a_raised_one_lets_more_in() -> None:
    async def read() -> Pressure:
        raise AssertionError("not read here")

    limit = ConcurrencyLimit(read, 3)
    for borrower in "abc":
        await limit.slots.acquire_on_behalf_of(borrower)
    limit.slots.total_tokens = 1
    waiting = asyncio.ensure_future(limit.slots.acquire_on_behalf_of("d"))
    for borrower in "ab":
        limit.slots.release_on_behalf_of(borrower)
        await asyncio.sleep(0)
        assert not waiting.done()
    limit.slots.total_tokens = 2
    await asyncio.wait_for(waiting, 1)


async def test_a_crowded_engine_is_asked_for_fewer_groups_at_once(
    coordinator: Coordinator, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.pressure = pressure(running=8, waiting=100)
    script.stream_seconds = 0.3
    async with coordinator.client() as client:
        await client.start(request(task_ids=[task.id for task in script.tasks[:10]]))
        deadline = time.monotonic() + 20
        while len(script.asked) < 6:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        before, script.most_in_engine = script.most_in_engine, 0
        done = await ended(client, "one")
        rows = await all_rows(client, "one")
    assert done.state is SamplingState.DONE
    assert_each_once(rows, tasks=10)
    assert before == 4
    assert script.most_in_engine < 4


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "READ_SECONDS", 0.1)
