"""The greedy choice of seeds: at each step the one that kills most of what is alive (Chvatal 1979). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """What one candidate seed does."""

    kills: frozenset[int]
    """Mutants that it tells apart from their golds."""
    golds: int
    """Golds that return at least one row on it."""


@dataclass(frozen=True)
class Choice:
    """One chosen candidate."""

    index: int
    kills: int
    """Mutants that none chosen before kills."""


def choose(candidates: Sequence[Candidate], at_most: int) -> list[Choice]:
    """Up to `at_most` candidates, fewer where one more kills nothing new.

    Of equals the one with more golds that have rows, then the first.
    """
    chosen: list[Choice] = []
    dead: frozenset[int] = frozenset()
    while len(chosen) < at_most:
        best = max(
            range(len(candidates)),
            key=lambda index: (len(candidates[index].kills - dead), candidates[index].golds, -index),
            default=None,
        )
        if best is None or not candidates[best].kills - dead:
            break
        chosen.append(Choice(best, len(candidates[best].kills - dead)))
        dead |= candidates[best].kills
    return chosen
