"""When a training batch stops waiting for its slowest samples. Pure: the clock is given.

The statistical price: the samples left out are the slowest ones, so mostly the longest replies, at most
`1 - quorum` of a batch. They are absent (no reward, masked in the loss, counted as `straggler`), never scored 0; a run
whose replies differ much in length should raise `quorum` or `grace_share`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class StragglerRule:
    """Once a share `quorum` of a batch's samples is there, the rest may take `grace_share` of the time that took."""

    quorum: float
    grace_share: float
    grace_seconds: float
    """Shortest grace: a batch of a few seconds gains nothing by leaving samples out."""

    def grace(self, quorum_seconds: float) -> float:
        """Seconds to wait after a quorum that took `quorum_seconds`."""
        return max(self.grace_seconds, self.grace_share * quorum_seconds)


class BatchClock:
    """One batch's progress. `wanted`: samples that it asks for."""

    def __init__(self, rule: StragglerRule, wanted: int, clock: Callable[[], float]) -> None:
        self._rule = rule
        self._missing = math.ceil(rule.quorum * wanted)
        self._clock = clock
        self._started = self._held_until = clock()
        self._quorum_at: float | None = None

    def settle(self, samples: int) -> None:
        """So many more have landed, or were given up."""
        self._missing -= samples
        if self._missing <= 0 and self._quorum_at is None:
            self._quorum_at = self._clock()

    def hold(self) -> None:
        """Groups cannot be at fault now (a pause, some were not asked yet): the grace begins no sooner than here."""
        self._held_until = self._clock()

    def seconds_left(self) -> float | None:
        """Until what is missing is cut; None while there is no quorum."""
        if self._quorum_at is None:
            return None
        grace = self._rule.grace(self._quorum_at - self._started)
        return max(self._quorum_at, self._held_until) + grace - self._clock()
