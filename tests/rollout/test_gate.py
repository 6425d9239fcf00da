"""The circuit breaker: who waits, who is counted, who is let through first."""

import asyncio

import pytest

from services.rollout.samplings import gate as gates
from services.rollout.samplings.gate import Gate
from services.rollout.samplings.patience import WINDOW_MINIMUM
from shared.contracts.rollout import SamplingState
from tests.rollout.conftest import Coordinator
from tests.rollout.scripted import Script
from tests.rollout.test_samplings import K, all_rows, assert_each_once, ended, request, until


class Watched:
    """A gate whose obstacles are scripted and whose announcements are kept."""

    def __init__(self, *obstacles: str) -> None:
        self.obstacles = list(obstacles)
        self.told: list[str | None] = []
        self.gate = Gate(self._obstacle, self._on_change)

    async def _obstacle(self) -> str | None:
        return self.obstacles.pop() if self.obstacles else None

    async def _on_change(self, reason: str | None) -> None:
        self.told.append(reason)

    async def trip(self, detail: str = "engine_error: 500") -> None:
        """Fail until it has shut and cooled down."""
        for _ in range(WINDOW_MINIMUM):
            await self.gate.failed(self.gate.pauses, detail)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(gates, "COOLDOWN_SECONDS", 0.01)


async def passes(gate: Gate) -> bool:
    try:
        await asyncio.wait_for(gate.passed(), 0.05)
    except TimeoutError:
        return False
    return True


async def test_groups_that_fail_in_one_outage_pause_once_and_none_counts() -> None:
    watched = Watched(*["engine away"] * 5)
    gate = watched.gate
    assert await asyncio.gather(*(gate.failed(0, "x") for _ in range(10))) == [True] * 10
    assert watched.told == ["engine away", None]
    assert gate.pauses == 1
    assert await passes(gate)
    assert await passes(gate)
    assert not await gate.failed(1, "this group alone")


async def test_failures_while_everything_says_it_is_ready_pause_and_say_why() -> None:
    watched = Watched()
    gate = watched.gate
    counted = [not await gate.failed(gate.pauses, "engine_error: 500") for _ in range(WINDOW_MINIMUM)]
    assert counted == [True] * (WINDOW_MINIMUM - 1) + [False]
    assert watched.told[0] is not None
    assert "8 of the last groups failed (engine_error: 500); one group is tried again" in watched.told[0]
    assert watched.told[1] is not None
    assert "one group is being tried" in watched.told[1]


async def test_half_open_one_group_is_let_through_and_its_success_opens_for_all() -> None:
    watched = Watched()
    gate = watched.gate
    await watched.trip()
    assert await passes(gate)
    assert not await passes(gate)
    waiting = asyncio.gather(*(gate.passed() for _ in range(5)))
    await gate.succeeded()
    await asyncio.wait_for(waiting, 1)
    assert watched.told[-1] is None
    assert gate.open


async def test_half_open_a_failure_shuts_it_again_for_twice_as_long_and_the_group_is_not_at_fault() -> None:
    watched = Watched()
    gate = watched.gate
    await watched.trip()
    await gate.passed()
    assert await gate.failed(gate.pauses, "engine_error: 500 again")
    assert gate.pauses == 2
    assert not gate.open
    assert watched.told[-2] is not None
    assert "the group tried again failed (engine_error: 500 again)" in watched.told[-2]
    assert await passes(gate)  # the next one that is tried
    assert not await passes(gate)


async def test_half_open_a_group_that_proves_nothing_leaves_its_place_to_the_next() -> None:
    gate = (watched := Watched()).gate
    await watched.trip()
    await gate.passed()
    await gate.excused(0)  # one that had passed before the pause
    assert not await passes(gate)
    await gate.excused(gate.pauses)
    assert await passes(gate)
    assert not gate.open


async def test_half_open_an_obstacle_is_waited_for_and_then_it_opens_for_all() -> None:
    watched = Watched()
    gate = watched.gate
    await watched.trip()
    await gate.passed()
    watched.obstacles = ["verifier: away"] * 2
    assert await gate.failed(gate.pauses, "x")
    assert gate.open
    assert watched.told[-2:] == ["verifier: away", None]


async def test_half_open_what_was_in_flight_before_counts_for_nothing_when_it_fails() -> None:
    watched = Watched()
    gate = watched.gate
    await watched.trip()
    assert await gate.failed(0, "an old one")
    assert gate.pauses == 1
    assert await passes(gate)


async def test_a_sampling_says_that_it_paused_tries_one_group_at_a_time_and_loses_nothing(
    coordinator: Coordinator, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "COOLDOWN_SECONDS", 0.3)
    script.engine_faults.extend([500] * (WINDOW_MINIMUM + 2))
    async with coordinator.client() as client:
        await client.start(request())
        paused = await until(client, "one", SamplingState.PAUSED)
        before = script.entered
        assert "of the last groups failed (engine_error: " in paused.error
        assert "one group is" in paused.error
        done = await ended(client, "one")
        rows = await all_rows(client, "one")
    assert before <= WINDOW_MINIMUM + 3  # what was in flight when it shut
    assert (done.state, done.error, done.progress.lost) == (SamplingState.DONE, "", {})
    assert done.progress.rerolls == {"engine_error": (WINDOW_MINIMUM + 2) * K}
    assert_each_once(rows)
