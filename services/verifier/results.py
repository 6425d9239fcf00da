"""Outcomes kept by key, least recently used first out, bounded by bytes. Thread-safe."""

import threading
from collections import OrderedDict
from collections.abc import Hashable

from services.verifier.execution import Outcome

OVERHEAD_BYTES = 500
"""Counted for every entry besides its text."""


class ResultCache:
    """Holds at most `max_bytes` of result text."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._outcomes: OrderedDict[Hashable, Outcome] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: Hashable) -> Outcome | None:
        """The outcome, or None."""
        with self._guard:
            outcome = self._outcomes.get(key)
            if outcome is not None:
                self._outcomes.move_to_end(key)
            return outcome

    def put(self, key: Hashable, outcome: Outcome) -> None:
        """Keep an outcome; the oldest make room."""
        with self._guard:
            if key in self._outcomes:
                return
            self._outcomes[key] = outcome
            self._bytes += outcome.size_bytes + OVERHEAD_BYTES
            while self._bytes > self._max_bytes and self._outcomes:
                _, dropped = self._outcomes.popitem(last=False)
                self._bytes -= dropped.size_bytes + OVERHEAD_BYTES
