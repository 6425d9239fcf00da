"""The search where tolerances overlap: which column is which, and which row, both at once. Pure.

It keeps the row pairs that agree in everything decided so far; each column decided shortens the list, and in the end
the rows must pair off one to one. Before it begins sorted order prunes: where intervals grow with the number, a set of
cells pairs off with another exactly when their sorted sequences agree place by place. That holds for the cells of two
columns, and for the cells of two rows whatever their columns.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.verifier.cells import Cells, Codes
from services.verifier.refinement import Side, colour, widths

Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

ROW_PAIRS = 4_000_000
"""Most row pairs held at once: 2,000 rows all of which look alike."""

DENSE = 10
"""Where one in so many pairs agrees, testing all of them at once is faster than testing the list."""

PAIR_TESTS = 2_000_000
"""Row pairs tested after the first dead end before the search gives up, under a tenth of a second."""

MATCHING_TESTS = 20
"""What matching the rows costs, in tests a row."""

SAMPLE_ROWS = 32
"""A wrong column leaves some of so many rows alone, nearly always: the others need not be tested."""


@dataclass(frozen=True)
class Pairs:
    """Which of the gold's rows (or columns) may be which of the candidate's: parallel indices below `count`.

    Row pairs ascend by the candidate's.
    """

    gold: Indices
    candidate: Indices
    count: int

    def where(self, gold: Codes, low: Codes, high: Codes) -> "Pairs":
        """Those whose cells (rows × cells) are equal."""
        pairs = self
        for mine, lowest, highest in zip(gold.T, low.T, high.T, strict=True):
            value = mine.take(pairs.gold)
            equal = (lowest.take(pairs.candidate) <= value) & (value <= highest.take(pairs.candidate))
            if not equal.all():
                pairs = Pairs(pairs.gold[equal], pairs.candidate[equal], pairs.count)
        return pairs

    def sample(self) -> "Pairs":
        """Those of the candidate's first rows."""
        end = np.searchsorted(self.candidate, SAMPLE_ROWS)
        return Pairs(self.gold[:end], self.candidate[:end], self.count)

    @property
    def leave_no_sampled_row_alone(self) -> bool:
        """Whether the candidate's first rows have a partner each."""
        rows = min(SAMPLE_ROWS, self.count)
        return bool(np.bincount(self.candidate, minlength=rows)[:rows].all())

    @property
    def leave_nobody_alone(self) -> bool:
        """Whether every one has a partner at all."""
        return all(bool(np.bincount(side, minlength=self.count).all()) for side in (self.gold, self.candidate))

    def pair_off(self) -> bool:
        """Whether all have partners one to one: augmenting paths (Kuhn) over sets held as bits."""
        if not self.leave_nobody_alone:
            return False
        neighbours = self._neighbours()
        free = (1 << self.count) - 1
        holder: dict[int, int] = {}
        for mine in sorted(range(self.count), key=lambda k: neighbours[k].bit_count()):
            path = _path_to_free(mine, neighbours, free, holder)
            if path is None:
                return False
            for gold, candidate in path:
                holder[candidate] = gold
                free &= ~(1 << candidate)
        return True

    def _neighbours(self) -> list[int]:
        """For each of the gold's its partners, as bits."""
        order = np.lexsort((self.candidate, self.gold))
        ends = np.cumsum(np.bincount(self.gold, minlength=self.count))
        present = np.zeros(self.count, np.uint8)
        neighbours = []
        for candidates in np.split(self.candidate[order], ends[:-1]):
            present[:] = 0
            present[candidates] = 1
            neighbours.append(int.from_bytes(np.packbits(present, bitorder="little").tobytes(), "little"))
        return neighbours


def _path_to_free(start: int, neighbours: list[int], free: int, holder: dict[int, int]) -> list[tuple[int, int]] | None:
    """The (gold, candidate) pairs to make so that `start` gets a partner and nobody loses one; breadth first."""
    reached_from: dict[int, int] = {}
    came_by = {start: -1}
    unvisited = -1
    queue = deque([start])
    while queue:
        gold = queue.popleft()
        new = neighbours[gold] & unvisited
        if new & free:
            candidate = _lowest(new & free)
            path = [(gold, candidate)]
            while (candidate := came_by[gold]) >= 0:
                gold = reached_from[candidate]
                path.append((gold, candidate))
            return path
        unvisited &= ~new
        while new:
            candidate = _lowest(new)
            new &= new - 1
            reached_from[candidate] = gold
            came_by[holder[candidate]] = candidate
            queue.append(holder[candidate])
    return None


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def rows_pair_off(cells: Cells, classes: tuple[Codes, Codes]) -> bool:
    """Whether the rows pair off within their classes, each column with the one in its place."""
    pairs = _agreeing(*_keyed(cells.gold, cells.low, cells.high, classes))
    return pairs is not None and pairs.pair_off()


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
    gold_columns, candidate_columns = np.nonzero(certain)
    if Pairs(gold_columns, candidate_columns, len(certain)).pair_off():
        return True
    gold, low, high = (np.sort(side, axis=1) for side in (cells.gold, cells.low, cells.high))
    pairs = _agreeing(*_keyed(gold, low, high, (gold_classes, candidate_classes)))
    if pairs is None or not pairs.leave_nobody_alone:
        return False
    return _ColumnSearch(cells, possible, certain).run(pairs)


def _keyed(gold: Codes, low: Codes, high: Codes, classes: tuple[Codes, Codes]) -> tuple[Codes, Codes, Codes]:
    """Codes that agree only within a class."""
    size = int(max(gold.max(), high.max())) + 1
    mine, theirs = (side[:, None] * size for side in classes)
    return gold + mine, low + theirs, high + theirs


def _agreeing(gold: Codes, low: Codes, high: Codes) -> Pairs | None:
    """Row pairs equal in all cells (rows × cells). None: too many to hold."""
    rows = len(gold)
    ascending = np.argsort(gold, axis=0, kind="stable")
    # What equals a candidate cell is a stretch of the gold's rows in ascending order.
    cells = list(zip(gold.T, low.T, high.T, ascending.T, strict=True))
    starts = np.column_stack([np.searchsorted(mine, least, "left", order) for mine, least, _, order in cells])
    stops = np.column_stack([np.searchsorted(mine, most, "right", order) for mine, _, most, order in cells])
    lengths = np.maximum(stops - starts, 0)
    totals = lengths.sum(axis=0)
    fewest_first = [int(k) for k in np.argsort(totals, kind="stable")]
    join, *others = [k for k in fewest_first if totals[k] < rows * rows] or fewest_first[:1]
    if totals[join] > ROW_PAIRS:
        return None
    if totals[join] > rows * rows // DENSE:
        return _tested_all_at_once(ascending, starts, stops, [join, *others])
    length = lengths[:, join]
    within = np.arange(totals[join]) - np.repeat(np.cumsum(length) - length, length)
    candidate = np.repeat(np.arange(rows), length)
    pairs = Pairs(ascending[starts[candidate, join] + within, join], candidate, rows)
    return pairs.where(gold[:, others], low[:, others], high[:, others])


def _tested_all_at_once(ascending: Indices, starts: Codes, stops: Codes, cells: list[int]) -> Pairs:
    """The pairs that agree in these cells; small integers, because a million are compared for each cell."""
    rows = len(ascending)
    places = np.argsort(ascending, axis=0).astype(np.int16)
    from_place, to_place = starts.astype(np.int16), stops.astype(np.int16)
    equal = np.ones((rows, rows), np.bool_)
    for k in cells:
        equal &= from_place[:, k, None] <= places[:, k]
        equal &= places[:, k] < to_place[:, k, None]
    candidate, gold = np.nonzero(equal)
    return Pairs(gold, candidate, rows)


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
        self.partners = [self._likeliest_first(i, np.flatnonzero(row)) for i, row in enumerate(possible)]
        self.order = sorted(range(len(possible)), key=lambda i: (len(self.partners[i]), certain[i].sum()))
        self.tests_left: float = np.inf

    def _likeliest_first(self, i: int, partners: Indices) -> list[int]:
        """By how far apart their values are in sorted order."""
        gold = np.sort(self.cells.gold[:, self.cells.gold_spans[i]], axis=0)
        distances = {
            int(j): np.abs(gold - np.sort(self.cells.nearest[:, self.cells.candidate_spans[j]], axis=0)).sum()
            for j in partners
        }
        return sorted(distances, key=distances.__getitem__)

    def run(self, pairs: Pairs) -> bool:
        stack = [self._choices(0, frozenset(), pairs)]
        while stack and self.tests_left > 0:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                continue
            used, left = step
            if not self._only_certain_left(used):
                stack.append(self._choices(len(used), used, left))
                continue
            self.tests_left -= len(left.gold) + MATCHING_TESTS * left.count
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
        self.tests_left = min(self.tests_left, PAIR_TESTS)

    def _choices(self, depth: int, used: frozenset[int], pairs: Pairs) -> Iterator[tuple[frozenset[int], Pairs]]:
        i = self.order[depth]
        gold = self.cells.gold[:, self.cells.gold_spans[i]]
        for j in self.partners[i]:
            if j in used:
                continue
            left = pairs if self.certain[i, j] else self._left(pairs, gold, self.cells.candidate_spans[j])
            if left is None:
                self._dead_end()
            else:
                yield used | {j}, left

    def _left(self, pairs: Pairs, gold: Codes, span: slice) -> Pairs | None:
        """The pairs that agree in one more column. None when a row is left alone."""
        low, high = self.cells.low[:, span], self.cells.high[:, span]
        sample = pairs.sample()
        self.tests_left -= len(sample.gold)
        if not sample.where(gold, low, high).leave_no_sampled_row_alone:
            return None
        self.tests_left -= len(pairs.gold)
        left = pairs.where(gold, low, high)
        return left if left.leave_nobody_alone else None
