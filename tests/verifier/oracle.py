"""Whether two results are the same, found by trying: slow, plain, and none of it the verifier's code but the values."""

import itertools
from collections.abc import Sequence

from services.verifier.nested import Value, same_but_for_numbers
from services.verifier.tolerance import HALF_CENT

Row = tuple[Value, ...]


def same_cell(gold: Value, candidate: Value) -> bool:
    return same_but_for_numbers(gold, candidate, HALF_CENT.close)


def pair_off(gold: Sequence[Row], candidate: Sequence[Row], groups: Sequence[int] | None = None) -> bool:
    """Whether the rows pair off, each with an equal one of its own group (Kuhn's algorithm, row by row)."""
    holder: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for other in range(len(candidate)):
            if other in seen or (groups is not None and groups[row] != groups[other]):
                continue
            if all(map(same_cell, gold[row], candidate[other])):
                seen.add(other)
                if other not in holder or place(holder[other], seen):
                    holder[other] = row
                    return True
        return False

    return len(gold) == len(candidate) and all(place(row, set()) for row in range(len(gold)))


def same_result(gold: Sequence[Row], candidate: Sequence[Row], groups: Sequence[int] | None = None) -> bool:
    """Under some order of the columns."""
    if len(gold) != len(candidate) or not gold or len(gold[0]) != len(candidate[0]):
        return len(gold) == len(candidate) == 0
    width = range(len(gold[0]))
    mine, theirs = list(zip(*gold, strict=True)), list(zip(*candidate, strict=True))
    alike = {(i, j) for i in width for j in width if pair_off([*zip(mine[i])], [*zip(theirs[j])])}
    return any(
        pair_off(gold, [tuple(row[column] for column in order) for row in candidate], groups)
        for order in itertools.permutations(width)
        if all((i, j) in alike for i, j in enumerate(order))
    )
