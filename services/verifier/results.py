"""Outcomes by what decides them: each is computed once, also when several threads ask at the same time. Thread-safe.

What is kept is bounded by the memory it takes, least recently used first out.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum

from services.verifier.execution import Failure, Outcome

Key = tuple[str, str, str]
"""Id of the rows (not of the sandbox: runs of one bundle share), seed, SQL."""

NOT_KEPT = frozenset({Failure.INFRASTRUCTURE, Failure.TIMEOUT})
"""Failures that may not repeat."""

_ENTRY_BYTES = 1_000
"""Objects of an entry besides its cells: key, outcome, containers."""
_ROW_BYTES = 150
_CELL_BYTES = 160
"""A row's two tuples; a cell's text and value objects (a Decimal is 104 bytes), without their characters."""


class Source(StrEnum):
    """Where an outcome came from."""

    HIT = "hit"  # kept from before
    JOINED = "joined"  # another request was just running it
    RUN = "run"


def held_bytes(sql: str, outcome: Outcome) -> int:
    """Memory an entry takes, estimated from above: characters count for the text and again for the value."""
    cells = len(outcome.rows) * len(outcome.columns)
    return _ENTRY_BYTES + len(sql) + 2 * outcome.size_bytes + len(outcome.rows) * _ROW_BYTES + cells * _CELL_BYTES


class _Flight:
    """A run in progress, which others wait for. A lock, because a Future costs more than a quick statement's share."""

    def __init__(self) -> None:
        self._outcome: Outcome | None = None
        self._under_way = threading.Lock()
        self._under_way.acquire()

    def land(self, outcome: Outcome | None) -> None:
        """Once: let the waiting go on. None: it ended by an error."""
        self._outcome = outcome
        self._under_way.release()

    def outcome(self) -> Outcome | None:
        """Wait for it."""
        with self._under_way:
            return self._outcome


class Results:
    """Outcomes by key, at most `max_bytes` of them kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Key, Outcome] = OrderedDict()
        self._bytes = 0
        self._flights: dict[Key, _Flight] = {}
        self._guard = threading.Lock()

    def size_bytes(self) -> int:
        """Memory that is held, as `held_bytes` counts."""
        return self._bytes

    def kept(self, key: Key) -> Outcome | None:
        """The outcome when it is there already."""
        with self._guard:
            return self._touch(key)

    def once(self, key: Key, run: Callable[[], Outcome]) -> tuple[Outcome, Source]:
        """The outcome kept, or the one another thread is about to have, or that of `run()`."""
        with self._guard:
            kept = self._touch(key)
            if kept is not None:
                return kept, Source.HIT
            flight = self._flights.get(key)
            if flight is None:
                mine = self._flights[key] = _Flight()
        if flight is not None:
            outcome = flight.outcome()
            # What broke may have been the other request's sandbox, or its thread: ask this one's own.
            if outcome is None or outcome.failure is Failure.INFRASTRUCTURE:
                return run(), Source.RUN
            return outcome, Source.JOINED
        outcome = None
        try:
            outcome = run()
            return outcome, Source.RUN
        finally:
            with self._guard:
                del self._flights[key]
                if outcome is not None and outcome.failure not in NOT_KEPT:
                    self._keep(key, outcome)
            mine.land(outcome)

    def _touch(self, key: Key) -> Outcome | None:
        outcome = self._kept.get(key)
        if outcome is not None:
            self._kept.move_to_end(key)
        return outcome

    def _keep(self, key: Key, outcome: Outcome) -> None:
        self._kept[key] = outcome
        self._bytes += held_bytes(key[2], outcome)
        while self._bytes > self._max_bytes:
            (_, _, sql), dropped = self._kept.popitem(last=False)
            self._bytes -= held_bytes(sql, dropped)
