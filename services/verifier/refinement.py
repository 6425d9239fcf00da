"""Which column is which, by colour refinement (Weisfeiler-Leman on the table seen as a bipartite graph). Pure.

Rows are coloured by the multiset of their cells with their columns' colours, columns by the multiset of theirs with
their rows' colours, in turn. Columns and rows that correspond under any renaming and reordering get equal colours, so
colours that differ rule out; columns still alike when nothing changes any more are told apart by trying one.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.verifier.cells import Codes, Spans

Colours = NDArray[np.uint64]
Order = NDArray[np.intp]

SEARCH_CELLS = 30_000_000
"""Cells coloured before the search gives up, about a second. Results not built to resist need a thousandth."""


@dataclass(frozen=True)
class Side:
    """One result: rows × columns of hashed cells, and a colour a row to begin with."""

    cells: Colours
    rows: Colours

    @classmethod
    def of(cls, codes: Codes, spans: Spans, row_classes: Codes) -> "Side":
        """`row_classes`: rows of different classes never correspond."""
        hashed = _mix(codes.astype(np.uint64))
        if hashed.shape[1] > len(spans):
            hashed = np.column_stack([_chained(hashed[:, span]) for span in spans])
        return cls(hashed, _mix(row_classes.astype(np.uint64)))

    def refined(self, rows: Colours, columns: Colours) -> tuple[Colours, Colours]:
        """One round."""
        rows = _mix(rows + _mix(self.cells ^ columns).sum(axis=1, dtype=np.uint64))
        columns = _mix(columns + _mix(self.cells ^ rows[:, None]).sum(axis=0, dtype=np.uint64))
        return rows, columns


@dataclass(frozen=True)
class Colouring:
    """Stable colours of both sides; as multisets they agree."""

    gold_rows: Colours
    gold_columns: Colours
    candidate_rows: Colours
    candidate_columns: Colours


def _mix(values: Colours) -> Colours:
    """A bijection of 64-bit words that scatters them (the finaliser of splitmix64)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _chained(cells: Colours) -> Colours:
    """One hash a row of cells in their order."""
    chained = np.zeros(len(cells), np.uint64)
    for cell in cells.T:
        chained = _mix(chained + cell)
    return chained


def colour(gold: Side, candidate: Side, gold_columns: Colours, candidate_columns: Colours) -> Colouring | None:
    """Refine from given column colours. None when the two sides cannot correspond."""
    gold_rows, candidate_rows = gold.rows, candidate.rows
    told_apart = 0
    while True:
        gold_rows, gold_columns = gold.refined(gold_rows, gold_columns)
        candidate_rows, candidate_columns = candidate.refined(candidate_rows, candidate_columns)
        if not _same(gold_columns, candidate_columns) or not _same(gold_rows, candidate_rows):
            return None
        count = len(np.unique(gold_rows)) + len(np.unique(gold_columns))
        if count == told_apart:
            return Colouring(gold_rows, gold_columns, candidate_rows, candidate_columns)
        told_apart = count


def _same(left: Colours, right: Colours) -> bool:
    return bool((np.sort(left) == np.sort(right)).all())


def correspond(gold: Codes, candidate: Codes, spans: tuple[Spans, Spans], row_classes: tuple[Codes, Codes]) -> bool:
    """Whether some order of the columns makes the two multisets of rows (with their classes) the same."""
    return _Search(gold, candidate, spans, row_classes).run(widths(spans[0]), widths(spans[1]))


def widths(spans: Spans) -> Colours:
    """Cells of each column: a colour to begin with."""
    return np.array([span.stop - span.start for span in spans], np.uint64)


class _Search:
    def __init__(self, gold: Codes, candidate: Codes, spans: tuple[Spans, Spans], classes: tuple[Codes, Codes]) -> None:
        self.codes = gold, candidate
        self.spans = spans
        self.classes = classes
        self.gold, self.candidate = Side.of(gold, spans[0], classes[0]), Side.of(candidate, spans[1], classes[1])
        self.budget = SEARCH_CELLS

    def run(self, gold_columns: Colours, candidate_columns: Colours) -> bool:
        self.budget -= self.gold.cells.size
        if self.budget < 0:
            return False
        found = colour(self.gold, self.candidate, gold_columns, candidate_columns)
        if found is None:
            return False
        column = self._open_column(found)
        if column is None:
            return self._same_rows(np.argsort(found.gold_columns), np.argsort(found.candidate_columns))
        marked = found.gold_columns.copy()
        marked[column] = _MARK
        for choice in self._choices(found, column):
            candidate_marked = found.candidate_columns.copy()
            candidate_marked[choice] = _MARK
            if self.run(marked, candidate_marked):
                return True
        return False

    def _open_column(self, found: Colouring) -> int | None:
        """A gold column that shares its colour with a different one; of the rarest such colour. None: all is told."""
        colours, counts = np.unique(found.gold_columns, return_counts=True)
        for index in np.argsort(counts, kind="stable"):
            members = np.flatnonzero(found.gold_columns == colours[index])
            if len(members) > 1 and not (self.gold.cells[:, members] == self.gold.cells[:, members[:1]]).all():
                return int(members[0])
        return None

    def _choices(self, found: Colouring, column: int) -> Iterator[int]:
        """Candidate columns of the same colour, each once."""
        tried: set[bytes] = set()
        for choice in np.flatnonzero(found.candidate_columns == found.gold_columns[column]):
            content = self.candidate.cells[:, choice].tobytes()
            if content not in tried:
                tried.add(content)
                yield int(choice)

    def _same_rows(self, gold_order: Order, candidate_order: Order) -> bool:
        gold, candidate = (
            codes[:, [cell for column in order for cell in range(spans[column].start, spans[column].stop)]]
            for codes, spans, order in zip(self.codes, self.spans, (gold_order, candidate_order), strict=True)
        )
        return row_counts(gold, self.classes[0]) == row_counts(candidate, self.classes[1])


_MARK = np.uint64(0x5E1EC7ED)


def row_counts(codes: Codes, classes: Codes) -> Counter[bytes]:
    """The rows, each with its class, as a multiset."""
    return Counter(row.tobytes() for row in np.column_stack([classes, codes]))
