"""Which kind of task each call is to bring: cells of archetype x difficulty, filled in proportion. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from shared.contracts.tasks import Archetype, Difficulty


@dataclass(frozen=True)
class Cell:
    """One kind of task."""

    archetype: Archetype
    difficulty: Difficulty


class CellPlan:
    """Deals out cells so that at any moment each has been asked for in proportion to its weight."""

    def __init__(self, weights: Mapping[Archetype, float]) -> None:
        """`weights`: archetype to its share relative to the others; empty: all alike; an absent one is never asked."""
        given = {archetype: weight for archetype, weight in weights.items() if weight > 0}
        self._weights = given or dict.fromkeys(Archetype, 1.0)
        self._asked: Counter[Cell] = Counter()

    def asked(self, cell: Cell, proposals: int) -> None:
        """Count what a call asked for."""
        self._asked[cell] += proposals

    def next(self) -> Cell:
        """The cell that is furthest behind its share; ties go through the archetypes first, then the difficulties."""
        cells = [Cell(archetype, difficulty) for difficulty in Difficulty for archetype in self._weights]
        return min(cells, key=lambda cell: self._asked[cell] / self._weights[cell.archetype])
