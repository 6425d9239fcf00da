"""The circuit breaker groups pass before they are asked: shut while the infrastructure fails, open again by itself.

It shuts for an *obstacle* (a service says that it is not ready, the policy is not served) until that is gone, and opens
for all: readiness was the probe. It shuts too when half of the last groups failed though every service says it is
ready; then, after a cooldown, it is *half open*: one group is let through, and opens it for all or shuts it again for
twice as long.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum

from services.rollout import metrics
from services.rollout.samplings.patience import FailureWindow

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
"""How often a shut gate looks whether what it waits for is back."""

COOLDOWN_SECONDS = 10.0
"""Shortest pause when every service says it is ready and groups fail all the same; doubles up to the longest."""

LONGEST_COOLDOWN_SECONDS = 120.0

Obstacle = Callable[[], Awaitable[str | None]]
"""Answers why nothing can be sampled now, or None."""


class _State(StrEnum):
    OPEN = "open"
    SHUT = "shut"
    HALF_OPEN = "half open"  # one group at a time: the probe


class Gate:
    """One per sampling or batch. `on_change` is told the reason of a pause, and None when it is over."""

    def __init__(self, obstacle: Obstacle, on_change: Callable[[str | None], Awaitable[None]]) -> None:
        self._obstacle = obstacle
        self._on_change = on_change
        self._state = _State.OPEN
        self._moved = asyncio.Condition()
        self._probing = False
        """While half open: a group is on its way."""
        self._failing = asyncio.Lock()  # one failure is looked into at a time
        self._window = FailureWindow()
        self._cooldown = COOLDOWN_SECONDS
        self.pauses = 0
        """Pauses so far: a group whose try spans one does not count that try."""

    @property
    def open(self) -> bool:
        """Whether groups pass freely."""
        return self._state is _State.OPEN

    async def passed(self) -> None:
        """Returns when this group may be asked. Each pass ends in `succeeded`, `failed` or `excused`."""
        async with self._moved:
            await self._moved.wait_for(
                lambda: self._state is _State.OPEN or (self._state is _State.HALF_OPEN and not self._probing)
            )
            self._probing = self._state is _State.HALF_OPEN

    async def succeeded(self) -> None:
        """A group landed, or was refused for its own fault: the infrastructure answers."""
        self._window.record(failed=False)
        self._cooldown = COOLDOWN_SECONDS
        if self._state is _State.HALF_OPEN:
            await self._move(_State.OPEN)
            await self._on_change(None)

    async def excused(self, pauses_before: int) -> None:
        """A group's try says nothing about the infrastructure (the engine was busy): another may be the probe."""
        if self._state is _State.HALF_OPEN and self.pauses == pauses_before:
            await self._move(_State.HALF_OPEN)

    async def failed(self, pauses_before: int, detail: str) -> bool:
        """A group failed. Returns, once a pause is over, whether the fault was the infrastructure's as a whole."""
        async with self._failing:
            if self.pauses != pauses_before:
                return True
            self._window.record(failed=True)
            await self._wait_for_obstacle()
            if self.pauses == pauses_before and (self._state is _State.HALF_OPEN or self._window.tripped()):
                await self._cool_down(detail)
            return self.pauses != pauses_before

    async def check(self) -> None:
        """Before the first group: returns when nothing is in the way."""
        async with self._failing:
            await self._wait_for_obstacle()

    async def _wait_for_obstacle(self) -> None:
        reason = await self._obstacle()
        if reason is None:
            return
        await self._shut()
        log.warning("paused: %s", reason)
        told = None
        while reason is not None:
            if reason != told:  # it may count seconds, so it is written each time and logged once
                await self._on_change(reason)
                told = reason
            await asyncio.sleep(CHECK_SECONDS)
            reason = await self._obstacle()
        await self._end_pause(_State.OPEN)
        await self._on_change(None)

    async def _cool_down(self, detail: str) -> None:
        who = (
            "the group tried again"
            if self._state is _State.HALF_OPEN
            else f"{self._window.failures} of the last groups"
        )
        reason = f"{who} failed ({detail})"
        await self._shut()
        log.warning("paused for %.0f s: %s", self._cooldown, reason)
        await self._on_change(f"{reason}; one group is tried again in {self._cooldown:.0f} s")
        await asyncio.sleep(self._cooldown)
        self._cooldown = min(2 * self._cooldown, LONGEST_COOLDOWN_SECONDS)
        await self._on_change(f"{reason}; one group is being tried")
        await self._end_pause(_State.HALF_OPEN)

    async def _shut(self) -> None:
        metrics.PAUSES.inc()
        await self._move(_State.SHUT)

    async def _end_pause(self, state: _State) -> None:
        self._window.reset()
        self.pauses += 1
        await self._move(state)

    async def _move(self, state: _State) -> None:
        async with self._moved:
            self._state, self._probing = state, False
            self._moved.notify_all()
