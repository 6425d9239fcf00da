"""The search where tolerances overlap: which column is which, and which row, both at once. Pure.

It keeps for each row the partners that agree in everything decided so far; each column decided leaves fewer, and in
the end the rows must pair off one to one. Before it begins sorted order prunes: where intervals grow with the number,
a set of cells pairs off with another exactly when their sorted sequences agree place by place. That holds for the cells
of two columns, and for the cells of two rows whatever their columns.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from services.verifier.cells import Cells, Codes
from services.verifier.matching import Ascending, Partners, columns_pair_off
from services.verifier.refinement import Side, colour, widths

Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

TESTS = 64.0
"""Columns tested after the first dead end before the search gives up: a hundredth of a second at 1,000 rows."""

SAMPLE_TESTS, MATCHING_TESTS = 0.25, 3.0
"""What testing the first rows only, and matching the rows, cost in such tests."""


def rows_pair_off(cells: Cells, classes: tuple[Codes, Codes]) -> bool:
    """Whether the rows pair off within their classes, each column with the one in its place."""
    partners = _agreeing(*_keyed(cells.gold, cells.low, cells.high, classes))
    return partners is not None and partners.pair_off()


def correspond_within_tolerance(cells: Cells, classes: tuple[Codes, Codes]) -> bool:
    """Whether under some order of the columns the rows pair off within their classes."""
    gold_codes, candidate_codes = cells.merged()
    sides = (
        Side.of(gold_codes, cells.gold_spans, classes[0]),
        Side.of(candidate_codes, cells.candidate_spans, classes[1]),
    )
    found = colour(*sides, widths(cells.gold_spans), widths(cells.candidate_spans))
    if found is None:
        return False
    _, merged = np.unique(np.concatenate([found.gold_rows, found.candidate_rows]), return_inverse=True)
    gold_classes, candidate_classes = np.split(merged.astype(np.int64), 2)
    alike = found.gold_columns[:, None] == found.candidate_columns
    possible, certain = _column_pairs(cells, (gold_classes, candidate_classes), alike)
    if columns_pair_off(certain):
        return True
    gold, low, high = (np.sort(side, axis=1) for side in (cells.gold, cells.low, cells.high))
    partners = _agreeing(*_keyed(gold, low, high, (gold_classes, candidate_classes)))
    return partners is not None and _ColumnSearch(cells, possible, certain).run(partners)


def _keyed(gold: Codes, low: Codes, high: Codes, classes: tuple[Codes, Codes]) -> tuple[Codes, Codes, Codes]:
    """Codes that agree only within a class."""
    size = int(max(gold.max(), high.max())) + 1
    mine, theirs = (side[:, None] * size for side in classes)
    return gold + mine, low + theirs, high + theirs


def _agreeing(gold: Codes, low: Codes, high: Codes) -> Partners | None:
    """Rows equal in all cells (rows × cells). None when a row has no partner."""
    partners = Partners.everybody(len(gold)).where(map(Ascending.of, gold.T), low, high)
    return partners if partners.leave_nobody_alone else None


def _column_pairs(cells: Cells, classes: tuple[Codes, Codes], alike: Flags) -> tuple[Flags, Flags]:
    """Gold × candidate columns: may they be the same one, and if so, are all rows of a class equal in them?"""
    gold, low, high = (np.sort(side, axis=0) for side in _keyed(cells.gold, cells.low, cells.high, classes))
    _, first = np.unique(np.sort(classes[0]), return_index=True)
    last = np.append(first[1:], len(gold)) - 1
    possible, certain = alike.copy(), np.zeros_like(alike)
    for i, j in zip(*np.nonzero(alike), strict=True):
        mine, theirs = gold[:, cells.gold_spans[i]], cells.candidate_spans[j]
        possible[i, j] = ((low[:, theirs] <= mine) & (mine <= high[:, theirs])).all()
        if possible[i, j]:
            certain[i, j] = ((low[last, theirs] <= mine[first]) & (mine[last] <= high[first, theirs])).all()
    return possible, certain


class _ColumnSearch:
    """Depth first: the gold column with the fewest partners first, its likeliest partner first."""

    def __init__(self, cells: Cells, possible: Flags, certain: Flags) -> None:
        self.cells = cells
        self.certain = certain
        self.sorted_gold, self.sorted_candidate = (np.sort(side, axis=0) for side in (cells.gold, cells.nearest))
        self.column_partners = [self._likeliest_first(i, np.flatnonzero(row)) for i, row in enumerate(possible)]
        self.order = sorted(range(len(possible)), key=lambda i: (len(self.column_partners[i]), certain[i].sum()))
        self.tests_left = math.inf

    def _likeliest_first(self, i: int, partners: Indices) -> list[int]:
        """By how far apart their values are in sorted order."""
        gold = self.sorted_gold[:, self.cells.gold_spans[i]]
        distances = {
            int(j): np.abs(gold - self.sorted_candidate[:, self.cells.candidate_spans[j]]).sum() for j in partners
        }
        return sorted(distances, key=distances.__getitem__)

    def run(self, partners: Partners) -> bool:
        stack = [self._choices(0, frozenset(), partners)]
        while stack and self.tests_left > 0:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                continue
            used, left = step
            if not self._only_certain_left(used):
                stack.append(self._choices(len(used), used, left))
                continue
            self.tests_left -= MATCHING_TESTS
            if left.pair_off():
                return True
            self._dead_end()
        return False

    def _only_certain_left(self, used: frozenset[int]) -> bool:
        """Whether the columns left may stand for each other as they like, so that the rows decide."""
        unused = [j for j in range(len(self.order)) if j not in used]
        return bool(self.certain[np.ix_(self.order[len(used) :], unused)].all())

    def _dead_end(self) -> None:
        """From here on the search may be about to try all there is."""
        self.tests_left = min(self.tests_left, TESTS)

    def _choices(
        self, depth: int, used: frozenset[int], partners: Partners
    ) -> Iterator[tuple[frozenset[int], Partners]]:
        i = self.order[depth]
        gold = [Ascending.of(cells) for cells in self.cells.gold[:, self.cells.gold_spans[i]].T]
        for j in self.column_partners[i]:
            if j in used:
                continue
            left = partners if self.certain[i, j] else self._left(partners, gold, self.cells.candidate_spans[j])
            if left is None:
                self._dead_end()
            else:
                yield used | {j}, left

    def _left(self, partners: Partners, gold: list[Ascending], span: slice) -> Partners | None:
        """The partners that agree in one more column. None when a row is left alone."""
        low, high = self.cells.low[:, span], self.cells.high[:, span]
        self.tests_left -= SAMPLE_TESTS
        if not partners.sample().where(gold, low, high).leave_no_candidate_alone:
            return None
        self.tests_left -= 1
        left = partners.where(gold, low, high)
        return left if left.leave_nobody_alone else None
