"""Which rows may be which, held as bits, and whether all of them find a partner one to one. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.verifier.cells import Codes

Words = NDArray[np.uint64]
"""Rows × 64-bit words: a set of row numbers each."""

SAMPLE_ROWS = 32
"""A wrong column leaves some of so many rows alone, nearly always: the others need not be tested."""


@dataclass(frozen=True)
class Ascending:
    """One of the gold's columns in ascending order, with the set of rows before each place."""

    codes: Codes
    rows_before: Words

    @classmethod
    def of(cls, column: Codes) -> "Ascending":
        rows = len(column)
        order = np.argsort(column, kind="stable")
        sets = np.zeros((rows + 1, -(-rows // 64)), np.uint64)
        sets[np.arange(1, rows + 1), order // 64] = np.left_shift(np.uint64(1), (order % 64).astype(np.uint64))
        return cls(column[order], np.bitwise_xor.accumulate(sets, axis=0, out=sets))

    def between(self, low: Codes, high: Codes) -> Words:
        """For each interval the rows whose code lies in it; `low <= high`."""
        start, stop = self.codes.searchsorted(low, "left"), self.codes.searchsorted(high, "right")
        return self.rows_before[stop] ^ self.rows_before[start]


@dataclass(frozen=True)
class Partners:
    """For each of the candidate's rows the gold's rows that it may be."""

    sets: Words

    @classmethod
    def everybody(cls, rows: int) -> "Partners":
        """Any row may be any."""
        return cls(np.broadcast_to(_packed(np.ones((1, rows), np.bool_)), (rows, -(-rows // 64))))

    def sample(self) -> "Partners":
        """Of the candidate's first rows alone."""
        return Partners(self.sets[:SAMPLE_ROWS])

    def where(self, gold: Iterable[Ascending], low: Codes, high: Codes) -> "Partners":
        """Those whose cells (rows × cells) are equal too."""
        sets = self.sets
        for column, lowest, highest in zip(gold, low.T, high.T, strict=True):
            sets = sets & column.between(lowest[: len(sets)], highest[: len(sets)])
        return Partners(sets)

    @property
    def leave_no_candidate_alone(self) -> bool:
        """Whether each of the candidate's rows held here has a partner."""
        return bool(self.sets.any(axis=1).all())

    @property
    def leave_nobody_alone(self) -> bool:
        """Whether every row of both sides has a partner at all."""
        everybody = Partners.everybody(len(self.sets)).sets[0]
        return self.leave_no_candidate_alone and bool((np.bitwise_or.reduce(self.sets, axis=0) == everybody).all())

    def pair_off(self) -> bool:
        """Whether all have partners one to one."""
        return self.leave_nobody_alone and _pair_off(self.sets)


def columns_pair_off(possible: NDArray[np.bool_]) -> bool:
    """The same of columns: whether some order puts a True at every place of the diagonal."""
    return _pair_off(_packed(possible))


def _packed(flags: NDArray[np.bool_]) -> Words:
    padded = np.zeros((len(flags), -(-flags.shape[1] // 64) * 64), np.bool_)
    padded[:, : flags.shape[1]] = flags
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _pair_off(sets: Words) -> bool:
    """Augmenting paths (Kuhn) over sets held as bits."""
    neighbours = [int.from_bytes(line.tobytes(), "little") for line in sets.astype("<u8")]
    free = (1 << len(neighbours)) - 1
    holder: dict[int, int] = {}
    for row in sorted(range(len(neighbours)), key=lambda k: neighbours[k].bit_count()):
        path = _path_to_free(row, neighbours, free, holder)
        if path is None:
            return False
        for mine, theirs in path:
            holder[theirs] = mine
            free &= ~(1 << theirs)
    return True


def _path_to_free(
    start: int, neighbours: Sequence[int], free: int, holder: dict[int, int]
) -> list[tuple[int, int]] | None:
    """The pairs to make so that `start` gets a partner and nobody loses one; breadth first."""
    reached_from: dict[int, int] = {}
    came_by = {start: -1}
    unvisited = -1
    queue = deque([start])
    while queue:
        mine = queue.popleft()
        new = neighbours[mine] & unvisited
        if new & free:
            theirs = _lowest(new & free)
            path = [(mine, theirs)]
            while (theirs := came_by[mine]) >= 0:
                mine = reached_from[theirs]
                path.append((mine, theirs))
            return path
        unvisited &= ~new
        while new:
            theirs = _lowest(new)
            new &= new - 1
            reached_from[theirs] = mine
            came_by[holder[theirs]] = theirs
            queue.append(holder[theirs])
    return None


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
