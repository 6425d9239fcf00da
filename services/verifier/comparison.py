"""Is a candidate's result the gold's result? Pure functions; the profiles say under which tolerance and order.

Rows form a multiset, or, where order matters, a sequence of tie groups. Columns stand where the gold has them, or are
matched by one bijection that keeps rows paired. First the search goes by equal values alone, which settles nearly
everything; only where tolerances overlap does it weigh which row is which.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from services.verifier.cells import Cells, Codes, number_cells, side_by_side
from services.verifier.nested import Value
from services.verifier.pairing import correspond_within_tolerance, rows_pair_off
from services.verifier.refinement import correspond, row_counts
from services.verifier.tolerance import EXACT, FLOAT_NOISE, HALF_CENT

Row = tuple[Value, ...]


@dataclass(frozen=True)
class Table:
    """A result: rows × columns of values."""

    columns: tuple[str, ...]
    rows: Sequence[Row]
    float_columns: frozenset[int] = frozenset()
    """Indices of columns that hold float4 or float8, whose last digits depend on the order of summation."""

    def without_last_columns(self, count: int) -> "Table":
        """The table narrower by `count` columns."""
        if not count:
            return self
        return Table(self.columns[:-count], [row[:-count] for row in self.rows], self.float_columns)


class Difference(IntEnum):
    """How far apart two results are; the nearer the smaller."""

    NONE = 0
    ROW_ORDER = 1
    VALUES = 2
    COLUMN_COUNT = 3
    ROW_COUNT = 4


@dataclass(frozen=True)
class Comparison:
    """`reason` shows no value of the gold."""

    difference: Difference
    reason: str

    @property
    def equal(self) -> bool:
        """Whether the candidate's result is the gold's."""
        return self.difference is Difference.NONE


EQUAL = Comparison(Difference.NONE, "same result as the gold")
OTHER_VALUES = Comparison(Difference.VALUES, "same shape, other values")
OTHER_ORDER = Comparison(Difference.ROW_ORDER, "the right rows in another order than asked for")


def compare(gold: Table, candidate: Table, tie_groups: Sequence[int] | None) -> Comparison:
    """Columns in any order, numbers within half a cent and five percent.

    `tie_groups`: for each gold row, in gold order, the number of its tie group (non-decreasing); None when order does
    not matter.
    """
    return _at_a_glance(gold, candidate) or _decide(_AnyColumnOrder(gold, candidate), gold, tie_groups)


def compare_in_place(gold: Table, candidate: Table, tie_groups: Sequence[int] | None) -> Comparison:
    """Columns in the gold's order, numbers exact but for float noise in float columns. `tie_groups` as above."""
    return _at_a_glance(gold, candidate) or _decide(_ColumnsInPlace(gold, candidate), gold, tie_groups)


def other_counts(gold: Table, candidate: Table) -> Comparison | None:
    """The difference where the counts of rows or columns differ. A result without rows has no columns to count."""
    if len(gold.rows) != len(candidate.rows):
        reason = f"{len(candidate.rows)} rows where the gold has {len(gold.rows)}"
        return Comparison(Difference.ROW_COUNT, reason)
    if gold.rows and len(gold.columns) != len(candidate.columns):
        reason = f"{len(candidate.columns)} columns where the gold has {len(gold.columns)}"
        return Comparison(Difference.COLUMN_COUNT, reason)
    return None


def _at_a_glance(gold: Table, candidate: Table) -> Comparison | None:
    """The verdict where counts decide, or nothing differs at all."""
    return other_counts(gold, candidate) or (EQUAL if not gold.columns or gold.rows == candidate.rows else None)


Classes = tuple[Codes, Codes]
"""Of each gold and each candidate row: rows correspond within a class."""


class _AnyColumnOrder:
    """Whether the rows correspond under some order of the columns, given their classes."""

    def __init__(self, gold: Table, candidate: Table) -> None:
        self._numbered = number_cells(_columns(gold), _columns(candidate))

    @cached_property
    def _cells(self) -> Cells | None:
        return self._numbered.under(HALF_CENT)

    def __call__(self, classes: Classes) -> bool:
        numbered = self._numbered
        spans = numbered.gold_spans, numbered.candidate_spans
        if numbered.all_known and correspond(numbered.gold, numbered.candidate, spans, classes):
            return True
        cells = self._cells
        if cells is None:
            return False
        if not numbered.all_known and correspond(cells.gold, cells.nearest, spans, classes):
            return True
        return cells.ambiguous and correspond_within_tolerance(cells, classes)


class _ColumnsInPlace:
    """Whether the rows correspond with every column where it stands, given the rows' classes."""

    def __init__(self, gold: Table, candidate: Table) -> None:
        noisy = gold.float_columns | candidate.float_columns
        parts = [
            number_cells([mine], [theirs]).under(FLOAT_NOISE if column in noisy else EXACT)
            for column, (mine, theirs) in enumerate(zip(_columns(gold), _columns(candidate), strict=True))
        ]
        self._cells = side_by_side(parts)

    def __call__(self, classes: Classes) -> bool:
        cells = self._cells
        if cells is None:
            return False
        if row_counts(cells.gold, classes[0]) == row_counts(cells.nearest, classes[1]):
            return True
        return cells.ambiguous and rows_pair_off(cells, classes)


def _columns(table: Table) -> list[Row]:
    return list(zip(*table.rows, strict=True))


def _decide(correspond_in: Callable[[Classes], bool], gold: Table, tie_groups: Sequence[int] | None) -> Comparison:
    anywhere = np.zeros(len(gold.rows), np.int64)
    if tie_groups is None:
        return EQUAL if correspond_in((anywhere, anywhere)) else OTHER_VALUES
    # The candidate's rows at a group's places must be that group's rows.
    groups = np.array(tie_groups, np.int64)
    if correspond_in((groups, groups)):
        return EQUAL
    return OTHER_ORDER if correspond_in((anywhere, anywhere)) else OTHER_VALUES
