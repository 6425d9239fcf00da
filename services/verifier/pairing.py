"""Which columns can stand for each other, and which rows: the matching under `comparison`. Pure."""

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from services.verifier.tolerance import bounds, close
from services.verifier.values import Value


@dataclass(frozen=True)
class Column:
    """One column's values (one a row), and what pairing needs of them."""

    values: tuple[Value, ...]
    others: Counter[Value]
    """Values that are no numbers, NULL included, with their counts."""
    numbers: tuple[Decimal, ...]
    """The distinct numbers, ascending."""
    intervals: tuple[tuple[Decimal, Decimal], ...]
    """For each of `numbers`, the interval that equals it."""

    @classmethod
    def of(cls, values: tuple[Value, ...]) -> "Column":
        """Prepare a column."""
        numbers = tuple(sorted({value for value in values if isinstance(value, Decimal)}))
        others: Counter[Value] = Counter(value for value in values if not isinstance(value, Decimal))
        return cls(values, others, numbers, tuple(bounds(number) for number in numbers))

    @property
    def distinct(self) -> int:
        """Number of distinct values."""
        return len(self.others) + len(self.numbers)


@dataclass(frozen=True)
class Pairing:
    """A gold column and a candidate column with equal value classes: one class number a row on each side.

    Equal values have equal classes. `ambiguous` when some candidate number equals several gold numbers: then equal
    classes are necessary, and `rows_match` decides.
    """

    gold: list[int]
    candidate: list[int]
    ambiguous: bool


def pair_columns(gold: Column, candidate: Column) -> Pairing | None:
    """The columns' common classes, or None when their multisets of values cannot be equal."""
    if gold.others != candidate.others:
        return None
    reached = _reach(gold, candidate.numbers)
    if reached is None:
        return None
    # Gold numbers that one candidate number equals together form one class; they are neighbours in ascending order.
    merged = {index for low, high in reached for index in range(low + 1, high + 1)}
    shared: dict[Value, int] = {value: -1 - index for index, value in enumerate(gold.others)}
    gold_class = dict(shared)
    number_class = 0
    for index, number in enumerate(gold.numbers):
        number_class += index not in merged
        gold_class[number] = number_class
    candidate_class = dict(shared)
    for number, (low, _) in zip(candidate.numbers, reached, strict=True):
        candidate_class[number] = gold_class[gold.numbers[low]]
    gold_classes = [gold_class[value] for value in gold.values]
    candidate_classes = [candidate_class[value] for value in candidate.values]
    if Counter(gold_classes) != Counter(candidate_classes):
        return None
    return Pairing(gold_classes, candidate_classes, bool(merged))


def _reach(gold: Column, numbers: Sequence[Decimal]) -> list[tuple[int, int]] | None:
    """For each candidate number (ascending) the first and last index into `gold.numbers` that it equals.

    None when one equals none. The intervals' ends ascend with the gold numbers, so the equal ones are contiguous.
    """
    lows = [low for low, _ in gold.intervals]
    highs = [high for _, high in gold.intervals]
    reached = []
    first = 0
    for number in numbers:
        while first < len(highs) and highs[first] < number:
            first += 1
        last = bisect_right(lows, number) - 1
        if first > last:
            return None
        reached.append((first, last))
    return reached


Row = tuple[Value, ...]


def rows_match(
    gold: Sequence[Row], candidate: Sequence[Row], gold_classes: Sequence[int], candidate_classes: Sequence[int]
) -> bool:
    """Whether the rows pair off, each with an equal one of its own class. Rows hold the ambiguous columns only."""
    by_class: dict[int, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for number, row in zip(gold_classes, gold, strict=True):
        by_class[number][0].append(row)
    for number, row in zip(candidate_classes, candidate, strict=True):
        by_class[number][1].append(row)
    return all(_perfect_matching(golds, candidates) for golds, candidates in by_class.values())


def _equal(gold: Row, candidate: Row) -> bool:
    # Classes already agree, so values that are no numbers are equal.
    return all(
        close(a, b) for a, b in zip(gold, candidate, strict=True) if isinstance(a, Decimal) and isinstance(b, Decimal)
    )


def _perfect_matching(golds: list[Row], candidates: list[Row]) -> bool:
    """Kuhn's augmenting paths, breadth first; equal multisets, the usual case, need none."""
    if Counter(golds) == Counter(candidates):
        return True
    neighbours = [[k for k, candidate in enumerate(candidates) if _equal(gold, candidate)] for gold in golds]
    holder: dict[int, int] = {}
    held: dict[int, int] = {}
    for start in range(len(golds)):
        reached_from: dict[int, int] = {}
        queue = deque([start])
        free: int | None = None
        while queue and free is None:
            gold = queue.popleft()
            for k in neighbours[gold]:
                if k in reached_from:
                    continue
                reached_from[k] = gold
                if k not in holder:
                    free = k
                    break
                queue.append(holder[k])
        if free is None:
            return False
        while free is not None:
            gold = reached_from[free]
            holder[free] = gold
            held[gold], free = free, held.get(gold)
    return True
