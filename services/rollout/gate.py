"""The gate groups pass before they are asked: shut while the infrastructure fails, open again by itself."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from services.rollout.patience import FailureWindow

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
"""How often a shut gate looks whether what it waits for is back."""

COOLDOWN_SECONDS = 10.0
"""Shortest pause when every service says it is ready and groups fail all the same; doubles up to the longest."""

LONGEST_COOLDOWN_SECONDS = 120.0

Obstacle = Callable[[], Awaitable[str | None]]
"""Answers why nothing can be sampled now, or None."""


class Gate:
    """One per sampling or batch. `on_change` is told the reason of a pause, and None when it is over."""

    def __init__(self, obstacle: Obstacle, on_change: Callable[[str | None], Awaitable[None]]) -> None:
        self._obstacle = obstacle
        self._on_change = on_change
        self._open = asyncio.Event()
        self._open.set()
        self._lock = asyncio.Lock()
        self._window = FailureWindow()
        self._cooldown = COOLDOWN_SECONDS
        self.pauses = 0
        """Pauses so far: a group whose try spans one does not count that try."""

    async def passed(self) -> None:
        """Returns when the gate is open."""
        await self._open.wait()

    def succeeded(self) -> None:
        """A group landed."""
        self._window.record(failed=False)
        self._cooldown = COOLDOWN_SECONDS

    async def failed(self, pauses_before: int, detail: str) -> bool:
        """A group failed. Returns, once the gate is open, whether the fault was the infrastructure's as a whole."""
        async with self._lock:
            if self.pauses != pauses_before:
                return True
            self._window.record(failed=True)
            await self._wait_for_obstacle()
            if self.pauses == pauses_before and self._window.tripped():
                await self._cool_down(detail)
            return self.pauses != pauses_before

    async def check(self) -> None:
        """Before the first group: returns when nothing is in the way."""
        async with self._lock:
            await self._wait_for_obstacle()

    async def _wait_for_obstacle(self) -> None:
        reason = await self._obstacle()
        if reason is None:
            return
        self._open.clear()
        log.warning("paused: %s", reason)
        told = None
        while reason is not None:
            if reason != told:  # it may count seconds, so it is written each time and logged once
                await self._on_change(reason)
                told = reason
            await asyncio.sleep(CHECK_SECONDS)
            reason = await self._obstacle()
        await self._reopen()

    async def _cool_down(self, detail: str) -> None:
        self._open.clear()
        reason = f"{self._window.failures} of the last groups failed ({detail})"
        log.warning("paused for %.0f s: %s", self._cooldown, reason)
        await self._on_change(f"{reason}; trying again in {self._cooldown:.0f} s")
        await asyncio.sleep(self._cooldown)
        self._cooldown = min(2 * self._cooldown, LONGEST_COOLDOWN_SECONDS)
        await self._reopen()

    async def _reopen(self) -> None:
        self._window.reset()
        self.pauses += 1
        await self._on_change(None)
        self._open.set()
