"""Seeded draws built on `random.random()` alone: Python promises to keep that one the same across versions."""

import datetime
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Draws of one seed. `edge_share` is the probability that a date is drawn from the boundary dates in its range."""

    def __init__(self, seed: int, edge_share: float) -> None:
        self._random = random.Random(seed)
        self._edge_share = edge_share

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def between(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return low + int(self._random.random() * (high - low + 1))

    def pick(self, values: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """One of `values`, uniformly or by weight."""
        if weights is None:
            return values[int(self._random.random() * len(values))]
        point = self._random.random() * sum(weights)
        for value, weight in zip(values, weights, strict=True):
            point -= weight
            if point < 0:
                return value
        return values[-1]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """A copy in random order."""
        return [value for _, _, value in sorted((self._random.random(), i, value) for i, value in enumerate(values))]

    def day(self, first: datetime.date, last: datetime.date) -> datetime.date:
        """A date, both ends included."""
        if self.chance(self._edge_share):
            edges = [first, last, *boundary_days(first, last)]
            return self.pick(edges)
        return first + datetime.timedelta(days=self.between(0, (last - first).days))


def boundary_days(first: datetime.date, last: datetime.date) -> list[datetime.date]:
    """First and last days of the quarters in the range, and the leap day: where `<` and `<=` part."""
    starts = [datetime.date(year, month, 1) for year in range(first.year, last.year + 1) for month in (1, 4, 7, 10)]
    ends = [start - datetime.timedelta(days=1) for start in starts]
    return [day for day in [*starts, *ends, datetime.date(2024, 2, 29)] if first <= day <= last]
