"""Which prompts a step trains on: a pure function of (seed, step, band). A resume needs only the step number."""

import random
from collections.abc import Iterator, Sequence
from itertools import islice


def prompt_batches(band: Sequence[str], per_step: int, seed: int) -> Iterator[list[str]]:
    """`per_step` distinct task ids for step 1, 2, …, without end.

    Passes over the shuffled band: no task comes again before every other one has come. A step that straddles two
    passes takes from the new one only tasks that it does not hold yet. Raises ValueError when the band is smaller
    than a step.
    """
    ordered = sorted(set(band))
    if len(ordered) < per_step:
        raise ValueError(f"the band holds {len(ordered)} tasks, a step takes {per_step} distinct ones")
    draw = random.Random(seed)
    waiting: list[str] = []
    while True:
        if len(waiting) < per_step:
            held = set(waiting)
            coming = draw.sample(ordered, len(ordered))
            waiting += [task for task in coming if task not in held] + [task for task in coming if task in held]
        yield waiting[:per_step]
        waiting = waiting[per_step:]


def remaining_batches(band: Sequence[str], per_step: int, seed: int, done: int, steps: int) -> list[list[str]]:
    """The batches of steps `done + 1` to `steps`. Raises ValueError as `prompt_batches`."""
    return list(islice(prompt_batches(band, per_step, seed), done, steps))


def step_seed(seed: int, step: int) -> int:
    """Seed of a step's sampling: another one each step, so that a task's second pass draws new samples."""
    return random.Random(f"{seed}:{step}").getrandbits(31)
