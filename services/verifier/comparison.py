"""Is a candidate's result the gold's result? Profile `standard` (design section 4) as pure functions.

Columns are matched by one bijection that keeps rows paired, whatever their names and order. Rows form a multiset, or,
where order matters, a sequence of tie groups. The search assigns one gold column at a time and refines the row classes,
so that a wrong assignment dies at the first column that breaks the rows apart: no factorial blow-up.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.verifier.pairing import Column, Pairing, pair_columns, rows_match
from services.verifier.values import Value

SEARCH_NODES = 20_000
"""Column assignments tried before the search gives up; results told apart by their rows need about one a column."""


@dataclass(frozen=True)
class Table:
    """A result: rows × columns of normalised values."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Value, ...]]


@dataclass(frozen=True)
class Comparison:
    """`reason` shows no value of the gold."""

    equal: bool
    reason: str


EQUAL = Comparison(True, "same result as the gold")


def compare(gold: Table, candidate: Table, tie_groups: Sequence[int] | None) -> Comparison:
    """Compare under profile `standard`.

    `tie_groups`: for each gold row, in gold order, the number of its tie group (non-decreasing); None when order does
    not matter.
    """
    if len(gold.rows) != len(candidate.rows):
        return Comparison(False, f"{len(candidate.rows)} rows where the gold has {len(gold.rows)}")
    if not gold.rows:
        return EQUAL
    if len(gold.columns) != len(candidate.columns):
        return Comparison(False, f"{len(candidate.columns)} columns where the gold has {len(gold.columns)}")
    if not gold.columns or list(gold.rows) == list(candidate.rows):
        return EQUAL
    if tie_groups is None:
        return EQUAL if _Search(gold, candidate, None).run() else Comparison(False, "same shape, other values")
    if _Search(gold, candidate, tie_groups).run():
        return EQUAL
    if _Search(gold, candidate, None).run():
        return Comparison(False, "the right rows in another order than asked for")
    return Comparison(False, "same shape, other values")


@dataclass
class _Search:
    gold: Table
    candidate: Table
    tie_groups: Sequence[int] | None
    nodes: int = 0
    order: list[int] = field(default_factory=list)
    pairings: dict[tuple[int, int], Pairing] = field(default_factory=dict)

    def run(self) -> bool:
        """Whether a column bijection exists under which the rows match."""
        golds = [Column.of(values) for values in zip(*self.gold.rows, strict=True)]
        self.candidates = [Column.of(values) for values in zip(*self.candidate.rows, strict=True)]
        for i, gold in enumerate(golds):
            for j, candidate in enumerate(self.candidates):
                if (pairing := pair_columns(gold, candidate)) is not None:
                    self.pairings[i, j] = pairing
        choices = Counter(i for i, _ in self.pairings)
        if len(choices) < len(golds):
            return False
        # The most constrained column first; among those, the one that tells most rows apart.
        self.order = sorted(range(len(golds)), key=lambda i: (choices[i], -golds[i].distinct))
        groups = list(self.tie_groups) if self.tie_groups is not None else [0] * len(self.gold.rows)
        return self._assign(0, (), groups, groups)

    def _assign(
        self, depth: int, chosen: tuple[int, ...], gold_classes: list[int], candidate_classes: list[int]
    ) -> bool:
        """Assign gold column `order[depth]`. The classes (one an original row) agree on all columns assigned so far."""
        if depth == len(self.order):
            return self._rows_pair(chosen, gold_classes, candidate_classes)
        tried: list[int] = []
        for j in range(len(self.candidates)):
            pairing = self.pairings.get((self.order[depth], j))
            if pairing is None or j in chosen:
                continue
            if any(self.candidates[j].values == self.candidates[k].values for k in tried):
                continue  # an identical column has failed here already
            tried.append(j)
            self.nodes += 1
            if self.nodes > SEARCH_NODES:
                return False
            refined = _refine(pairing, gold_classes, candidate_classes)
            if refined is not None and self._assign(depth + 1, (*chosen, j), *refined):
                return True
        return False

    def _rows_pair(self, chosen: tuple[int, ...], gold_classes: list[int], candidate_classes: list[int]) -> bool:
        """The classes agree; where tolerances overlap, a row-by-row matching decides."""
        columns = [(i, j) for i, j in zip(self.order, chosen, strict=True) if self.pairings[i, j].ambiguous]
        if not columns:
            return True
        gold_rows = [tuple(row[i] for i, _ in columns) for row in self.gold.rows]
        candidate_rows = [tuple(row[j] for _, j in columns) for row in self.candidate.rows]
        return rows_match(gold_rows, candidate_rows, gold_classes, candidate_classes)


def _refine(
    pairing: Pairing, gold_classes: list[int], candidate_classes: list[int]
) -> tuple[list[int], list[int]] | None:
    """Split each row class by one column pair. None when the two sides no longer hold equally many rows of a class."""
    numbers: dict[tuple[int, int], int] = {}
    gold = [numbers.setdefault((old, new), len(numbers)) for old, new in zip(gold_classes, pairing.gold, strict=True)]
    counts = Counter(gold)
    candidate = []
    for key in zip(candidate_classes, pairing.candidate, strict=True):
        number = numbers.get(key)
        if number is None or counts[number] == 0:
            return None
        counts[number] -= 1
        candidate.append(number)
    return gold, candidate
