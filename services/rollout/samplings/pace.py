"""Rates of a sampling that runs, over its last half minute. Pure: the clock is given."""

from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 30.0


class Pace:
    """Rows and tokens per second. Memory is bounded by the groups of one window."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._landed: deque[tuple[float, int, int]] = deque()

    def add(self, rows: int, tokens: int) -> None:
        """A group landed."""
        self._landed.append((self._clock(), rows, tokens))
        self._forget()

    def rates(self) -> tuple[float, float]:
        """Rows and tokens per second over the window (or since the start, when that is shorter)."""
        self._forget()
        seconds = max(1e-3, min(WINDOW_SECONDS, self._clock() - self._started))
        rows = sum(rows for _, rows, _ in self._landed)
        tokens = sum(tokens for _, _, tokens in self._landed)
        return rows / seconds, tokens / seconds

    def _forget(self) -> None:
        oldest = self._clock() - WINDOW_SECONDS
        while self._landed and self._landed[0][0] < oldest:
            self._landed.popleft()
