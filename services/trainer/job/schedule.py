"""Which prompts a step trains on: a pure function of band, seed and place. A checkpoint holds the place."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """How far a run has come through its band."""

    passes: int = 0
    """Passes over the band that have begun."""
    waiting: tuple[str, ...] = ()
    """Task ids of the present pass that no step has taken yet, in order."""


class Prompts:
    """Passes over the shuffled band, without end: no task comes again before every other one has come."""

    def __init__(self, band: Sequence[str], seed: int, place: Place = Place()) -> None:  # frozen
        self._band = sorted(set(band))
        self._seed = seed
        self.place = place

    def take(self, count: int, held: Collection[str] = ()) -> list[str]:
        """The next `count` task ids that are not in `held`, which wait; fewer when the band has no more."""
        taken: list[str] = []
        waiting = list(self.place.waiting)
        passes = self.place.passes
        count = min(count, len(set(self._band) - set(held)))
        while True:
            barred = {*held, *taken}
            fresh = list(dict.fromkeys(task for task in waiting if task not in barred))[: count - len(taken)]
            taken += fresh
            waiting = _without_first(waiting, fresh)
            if len(taken) == count:
                break
            waiting += random.Random(f"{self._seed}:{passes}").sample(self._band, len(self._band))
            passes += 1
        self.place = Place(passes, tuple(waiting))
        return taken


def _without_first(waiting: list[str], taken: list[str]) -> list[str]:
    """`waiting` without the first occurrence of each taken task: one that waits from two passes still comes twice."""
    gone = set(taken)
    left = []
    for task in waiting:
        if task in gone:
            gone.discard(task)
        else:
            left.append(task)
    return left


def step_seed(seed: int, step: int) -> int:
    """Seed of a step's sampling: another one each step, so that a task's second pass draws new samples."""
    return random.Random(f"{seed}:{step}").getrandbits(31)
