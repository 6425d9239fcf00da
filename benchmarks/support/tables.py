"""Results of 20 columns × 1,000 rows made to be hard to compare, and what a candidate may have done to each."""

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal

from services.verifier.comparison import Table
from services.verifier.nested import Value

COLUMNS, ROWS = 20, 1000

Rows = list[tuple[Value, ...]]


@dataclass(frozen=True)
class Case:
    """`same`: whether they are the same result, where that is known beforehand."""

    name: str
    gold: Table
    candidate: Table
    same: bool | None


def table(rows: Rows) -> Table:
    """Named columns for rows."""
    return Table(tuple(f"c{index}" for index in range(len(rows[0]))), rows)


def shuffled(rows: Rows, chance: random.Random) -> Rows:
    """Rows and columns in another order."""
    order = chance.sample(range(len(rows[0])), len(rows[0]))
    return [tuple(row[column] for column in order) for row in chance.sample(rows, len(rows))]


def golds(chance: random.Random, columns: int = COLUMNS, rows: int = ROWS) -> dict[str, Callable[[], Rows]]:
    """By what makes each hard."""

    def filled(value: Callable[[], Value]) -> Callable[[], Rows]:
        return lambda: [tuple(value() for _ in range(columns)) for _ in range(rows)]

    def uniform(low: float, high: float, places: int) -> Callable[[], Rows]:
        return filled(lambda: Decimal(f"{chance.uniform(low, high):.{places}f}"))

    def nearly_alike() -> Rows:
        base = [Decimal(f"{chance.uniform(1, 100):.4f}") for _ in range(rows)]
        return [tuple(value + Decimal(chance.randrange(20)) / 10_000 for _ in range(columns)) for value in base]

    def same_numbers() -> Rows:
        numbers = [1 + Decimal(k) / 1000 for k in range(rows)]
        return list(zip(*(chance.sample(numbers, rows) for _ in range(columns)), strict=True))

    return {
        "two decimals": uniform(0, 10_000, 2),
        "twelve decimals": uniform(0, 10_000, 12),
        "all within 1 and 2": uniform(1, 2, 16),
        "half cents apart": uniform(0, 20, 3),
        "a band of four tolerances": uniform(1, 1.02, 6),
        "a band within one tolerance": uniform(1, 1.004, 6),
        "zeros and ones": filled(lambda: Decimal(chance.randrange(2))),
        "names": filled(lambda: f"name {chance.randrange(5000)}"),
        "all columns alike": lambda: [(Decimal(row * row) / 7,) * columns for row in range(rows)],
        "columns nearly alike": nearly_alike,
        "columns of the same numbers": same_numbers,
        "constant columns": lambda: [tuple(Decimal(k) for k in range(columns))] * rows,
        "one row over and over": lambda: [tuple(Decimal(k) / 7 for k in range(columns))] * rows,
        "one-hot": lambda: [tuple(Decimal(row % columns == k) for k in range(columns)) for row in range(rows)],
        "cyclic": lambda: [tuple(Decimal((row + k) % columns) for k in range(columns)) for row in range(rows)],
    }


def cases(names: Collection[str] = (), seed: int = 7) -> Iterator[Case]:
    """Each of the named golds (all without names) with every change."""
    chance = random.Random(seed)
    for name, make in golds(chance).items():
        if names and name not in names:
            continue
        rows = make()
        numbers = isinstance(rows[0][0], Decimal)
        changes: dict[str, tuple[Rows, bool | None]] = {
            "permuted": (rows, True),
            "one cell different": (_with_cell(rows, Decimal("12345.5") if numbers else "another"), False),
            "one cell from elsewhere": (_with_cell(rows, rows[0][0]), None),
            "one column paired with other rows": (_paired_otherwise(rows, chance), None),
        }
        if numbers:
            changes["rounded"] = (_rounded(rows), None)
            changes["rounded, one column paired with other rows"] = (_rounded(_paired_otherwise(rows, chance)), None)
        for change, (changed, same) in changes.items():
            yield Case(f"{name}, {change}", table(rows), table(shuffled(changed, chance)), same)


def _with_cell(rows: Rows, value: Value) -> Rows:
    row, column = len(rows) // 2, len(rows[0]) // 2
    changed = (*rows[row][:column], value, *rows[row][column + 1 :])
    return [*rows[:row], changed, *rows[row + 1 :]]


def _paired_otherwise(rows: Rows, chance: random.Random) -> Rows:
    others = chance.sample(rows, len(rows))
    return [(*row[:3], other[3], *row[4:]) for row, other in zip(rows, others, strict=True)]


def _rounded(rows: Rows) -> Rows:
    return [tuple(round(cell, 2) if isinstance(cell, Decimal) else cell for cell in row) for row in rows]
