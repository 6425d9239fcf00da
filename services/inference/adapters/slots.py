"""Which adapters are ready now, how many requests each has in flight, and which one yields its slot. No I/O."""

import asyncio
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from services.inference.adapters.repository import Record

QUIET_SECONDS = 5.0
"""What was asked since is in use. Which of two in use was asked first is chance: the one that came first yields."""

LOOK_SECONDS = 1.0
"""Between two looks for one that is quiet, when no request ends."""


@dataclass
class Slot:
    """A ready adapter."""

    record: Record
    in_flight: int = 0
    closing: bool = False
    """Set before a drain: new requests are turned away."""
    last_asked: float = field(default_factory=time.monotonic)
    """When its newest request began. Not when one ended: a version out of use ends its last ones late."""
    idle_since: float = field(default_factory=time.monotonic)
    """When a request last ended."""
    came: float = field(default_factory=time.monotonic)
    """When it became ready here."""
    kept: bool = False
    """Pinned, or named by an alias: never closed for another's sake."""


class Slots:
    """The ready adapters by name."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}
        self._released = asyncio.Event()

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, name: str) -> bool:
        return name in self._slots

    @property
    def records(self) -> list[Record]:
        """The ready adapters."""
        return [slot.record for slot in self._slots.values()]

    def get(self, name: str) -> Slot | None:
        """The slot, None when the adapter is not ready or is being drained."""
        slot = self._slots.get(name)
        return None if slot is None or slot.closing else slot

    def add(self, record: Record) -> None:
        """It is ready."""
        self._slots[record.name] = Slot(record)

    def keep(self, names: Collection[str]) -> None:
        """These, and no others, are kept."""
        for name, slot in self._slots.items():
            slot.kept = name in names

    def drop(self, name: str) -> None:
        """It is no longer served."""
        self._slots.pop(name, None)

    @contextmanager
    def use(self, slot: Slot) -> Iterator[None]:
        """Count a request in flight."""
        slot.in_flight += 1
        slot.last_asked = time.monotonic()
        try:
            yield
        finally:
            slot.in_flight -= 1
            slot.idle_since = time.monotonic()
            self._released.set()

    async def close_least_recent(self, seconds: float) -> Slot | None:
        """Close the adapter that was asked longest ago, kept ones never; it has no request in flight.

        Waits for its requests, during which it still serves. None after `seconds`, at once when all are kept.
        """
        deadline = time.monotonic() + seconds
        while True:
            open_ = [slot for slot in self._slots.values() if not slot.closing and not slot.kept]
            if not open_:
                return None
            now = time.monotonic()
            victim = _yielding(open_, now, at_last=now >= deadline)
            if victim is not None:
                victim.closing = True
                return victim
            if now >= deadline:
                return None
            await self._release_before(min(deadline, now + LOOK_SECONDS))

    def reopen(self, slot: Slot) -> None:
        """It was closed for nothing, and serves again."""
        slot.closing = False

    async def drain(self, slot: Slot, seconds: float) -> bool:
        """Turn new requests away and wait for those in flight; on False, after `seconds`, it serves again."""
        deadline = time.monotonic() + seconds
        slot.closing = True
        while slot.in_flight:
            if not await self._release_before(deadline):
                slot.closing = False
                return False
        return True

    async def _release_before(self, deadline: float) -> bool:
        self._released.clear()
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + deadline - time.monotonic()):
                await self._released.wait()
        except TimeoutError:
            return False
        return True


def _yielding(slots: Sequence[Slot], now: float, at_last: bool) -> Slot | None:
    """Which of them may close now. `at_last`: any that is idle."""

    def order(slot: Slot) -> tuple[bool, float]:
        in_use = now - slot.last_asked < QUIET_SECONDS
        return in_use, slot.came if in_use else slot.last_asked

    first, *others = sorted(slots, key=order)
    quiet = (slot for slot in others if at_last or now - max(slot.last_asked, slot.idle_since) >= QUIET_SECONDS)
    return next((slot for slot in (first, *quiet) if slot.in_flight == 0), None)
