"""Two results as integers, so that comparing them is arithmetic on arrays. Pure.

Equality under a tolerance is not transitive, so no hash does it. But with the gold's numbers in ascending order it is
an interval: every gold cell becomes an integer, every candidate cell an interval of integers, and the two are equal
exactly when `low <= gold <= high`. Cells that are no numbers get integers of their own and intervals of one. An array
or a JSON value takes several cells: its shape and each of its numbers.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from services.verifier.nested import Value, is_nested
from services.verifier.tolerance import EXACT, Tolerance

Codes = NDArray[np.int64]
Column = Sequence[Value]
Spans = tuple[slice, ...]
"""For each column the cells it takes: one, save for arrays and JSON."""

SPLIT_CELLS = 100_000
"""An array or JSON column that would take more cells is compared by exact value."""

UNCLEAR_SHARE = 8
"""Where floats leave more than one in so many undecided, integers decide: a Decimal each is slower then."""

_ABSENT: Value = ("absent",)


@dataclass(frozen=True)
class Cells:
    """Both sides, rows × cells."""

    gold: Codes
    low: Codes
    high: Codes
    nearest: Codes
    """The candidate's cells as the nearest of the gold codes that each equals."""
    gold_spans: Spans
    candidate_spans: Spans

    @property
    def ambiguous(self) -> bool:
        """Whether some candidate cell equals more than one gold value, so that `nearest` may guess wrong."""
        return bool((self.low < self.high).any())

    def merged(self) -> tuple[Codes, Codes]:
        """Codes (gold, candidate) that agree where cells are equal: all that one candidate equals has one code."""
        change = np.zeros(int(max(self.gold.max(), self.high.max())) + 2, dtype=np.int64)
        wide = self.low < self.high
        np.add.at(change, self.low[wide] + 1, 1)
        np.add.at(change, self.high[wide] + 1, -1)
        classes = np.cumsum(np.cumsum(change) == 0)
        return classes[self.gold], classes[self.low]


def side_by_side(parts: Sequence[Cells | None]) -> Cells | None:
    """Columns encoded each for itself, as one. None when one is None or a column is of another width on each side."""
    known = [part for part in parts if part is not None and part.gold.shape == part.low.shape]
    if len(known) < len(parts):
        return None
    sides = ("gold", "low", "high", "nearest")
    gold, low, high, nearest = (np.hstack([getattr(part, side) for part in known]) for side in sides)
    cells = tuple(slice(k, k + 1) for k in range(gold.shape[1]))
    return Cells(gold, low, high, nearest, cells, cells)


@dataclass(frozen=True)
class Numbered:
    """Both sides, rows × cells, as indices into `values`: equal values have equal indices, close numbers have not."""

    gold: Codes
    candidate: Codes
    values: list[Value]
    known: int
    """The first so many of `values` are the gold's."""
    gold_spans: Spans
    candidate_spans: Spans

    @property
    def all_known(self) -> bool:
        """Whether the candidate holds only values that the gold holds too."""
        return self.known == len(self.values)

    def under(self, tolerance: Tolerance) -> Cells | None:
        """Codes and intervals. None when some candidate cell equals no gold cell."""
        if tolerance is EXACT:
            return self._exact()
        is_number = np.array([isinstance(value, Decimal) for value in self.values], np.bool_)
        gold_ids = np.flatnonzero(is_number[: self.known])
        new_ids = np.arange(self.known, len(self.values))
        if not is_number[new_ids].all():
            return None
        numbers = cast(list[Decimal], self.values)  # but for those that are none
        line = _NumberLine.of([numbers[k] for k in gold_ids], tolerance)
        low = np.empty(len(self.values), np.int64)
        others = np.flatnonzero(~is_number)
        low[others] = np.arange(len(gold_ids), len(gold_ids) + len(others))
        low[gold_ids] = line.rank
        high, nearest = low.copy(), low.copy()
        code = low[self.gold]
        low[gold_ids], high[gold_ids] = line.reach_of_own()
        low[new_ids], high[new_ids], nearest[new_ids] = line.reach([numbers[k] for k in new_ids])
        if (low > high).any():
            return None
        spans = self.gold_spans, self.candidate_spans
        return Cells(code, low[self.candidate], high[self.candidate], nearest[self.candidate], *spans)

    def _exact(self) -> Cells | None:
        if not self.all_known:
            return None
        same = self.candidate
        return Cells(self.gold, same, same, same, self.gold_spans, self.candidate_spans)


def number_cells(gold: Sequence[Column], candidate: Sequence[Column]) -> Numbered:
    """From columns (not rows) of values."""
    numbering: defaultdict[Value, int] = defaultdict()
    numbering.default_factory = numbering.__len__
    gold_columns, gold_spans = _split(gold)
    gold_codes = _numbered(gold_columns, numbering)
    known = len(numbering)
    candidate_columns, candidate_spans = _split(candidate)
    candidate_codes = _numbered(candidate_columns, numbering)
    return Numbered(gold_codes, candidate_codes, list(numbering), known, gold_spans, candidate_spans)


def _numbered(columns: Iterable[Column], numbering: defaultdict[Value, int]) -> Codes:
    return np.array([list(map(numbering.__getitem__, column)) for column in columns], np.int64).T


def _split(columns: Sequence[Column]) -> tuple[list[Column], Spans]:
    """Columns one cell wide each, and which of them were one column before."""
    cells: list[Column] = []
    spans = []
    for column in columns:
        start = len(cells)
        cells += _split_column(column)
        spans.append(slice(start, len(cells)))
    return cells, tuple(spans)


def _split_column(column: Column) -> list[Column]:
    # A column has one type, so its first value tells; JSON null is a value too.
    if not is_nested(next((value for value in column if value is not None), None)):
        return [column]
    numbers = [value[2] if isinstance(value, tuple) and is_nested(value) else () for value in column]
    width = max(map(len, numbers))
    if width * len(column) > SPLIT_CELLS:
        return [column]
    shapes: Column = [value[:2] if isinstance(value, tuple) and is_nested(value) else value for value in column]
    return [shapes, *([held[k] if k < len(held) else _ABSENT for held in numbers] for k in range(width))]


@dataclass(frozen=True)
class _NumberLine:
    """The gold's distinct numbers in ascending order, exactly and as floats, with the ends of what equals each.

    Floats decide but where rounding could mislead them; there Decimals do.
    """

    numbers: list[Decimal]
    rank: Codes
    """Of the numbers as they were given."""
    floats: NDArray[np.float64]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    tolerance: Tolerance

    @classmethod
    def of(cls, given: list[Decimal], tolerance: Tolerance) -> "_NumberLine":
        floats = _floats(given)
        order = np.argsort(floats, kind="stable")
        if (floats[order][1:] == floats[order][:-1]).any():  # distinct numbers that floats cannot tell apart
            order = np.array(sorted(range(len(given)), key=given.__getitem__), np.int64)
        rank = np.empty(len(given), np.int64)
        rank[order] = np.arange(len(given))
        numbers = [given[k] for k in order]
        lows, highs = tolerance.float_bounds(floats[order])
        return cls(numbers, rank, floats[order], lows, highs, tolerance)

    def reach_of_own(self) -> tuple[Codes, Codes]:
        """`reach` of the given numbers themselves."""
        low, high = self._reach(self.numbers, self.floats)
        return low[self.rank], high[self.rank]

    def reach(self, numbers: list[Decimal]) -> tuple[Codes, Codes, Codes]:
        """For each number the first, the last and the nearest of ours that it equals; first > last where none."""
        floats = _floats(numbers)
        low, high = self._reach(numbers, floats)
        if not self.numbers:
            return low, high, low
        above = np.clip(np.searchsorted(self.floats, floats), 0, len(self.floats) - 1)
        below = np.maximum(above - 1, 0)
        nearest = np.where(floats - self.floats[below] < self.floats[above] - floats, below, above)
        return low, high, np.clip(nearest, low, np.maximum(low, high))

    def _reach(self, numbers: list[Decimal], floats: NDArray[np.float64]) -> tuple[Codes, Codes]:
        order = np.argsort(floats, kind="stable")  # ascending, the search finds what it needs in the cache
        low, low_end, high, high_end = np.empty((4, len(floats)), np.int64)
        # Conversion, product and sum are each off by half a unit in the last place.
        slack = np.abs(floats[order]) * 1e-15 + 1e-17
        least, most = floats[order] - slack, floats[order] + slack
        low[order], low_end[order] = (np.searchsorted(self.highs, end, "left") for end in (least, most))
        high[order], high_end[order] = (np.searchsorted(self.lows, end, "right") - 1 for end in (least, most))
        unclear = np.flatnonzero((low != low_end) | (high != high_end))
        if len(unclear) > len(self.numbers) // UNCLEAR_SHARE and self._exactly is not None:
            exactly, lows, highs = self._exactly
            own = numbers is self.numbers
            wanted = exactly[unclear] if own else self.tolerance.billionths(numbers[k] for k in unclear)
            if wanted is not None:
                low[unclear] = np.searchsorted(highs, wanted, "left")
                high[unclear] = np.searchsorted(lows, wanted, "right") - 1
                return low, high
        for k in unclear:
            low[k] = bisect_left(self.numbers, numbers[k], low[k], low_end[k], key=self.tolerance.upper)
            high[k] = bisect_right(self.numbers, numbers[k], high[k] + 1, high_end[k] + 1, key=self.tolerance.lower) - 1
        return low, high

    @cached_property
    def _exactly(self) -> tuple[Codes, Codes, Codes] | None:
        """Our numbers and the ends of what equals each, in billionths, where they are short enough."""
        exactly = self.tolerance.billionths(self.numbers)
        return None if exactly is None else (exactly, *self.tolerance.billionth_bounds(exactly))


def _floats(numbers: list[Decimal]) -> NDArray[np.float64]:
    """Beyond a float's range: the largest float, so that arithmetic stays finite and the exact test decides."""
    floats = np.fromiter(map(float, numbers), np.float64, len(numbers))
    return np.clip(floats, -1e300, 1e300)
