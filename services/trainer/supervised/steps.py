"""Which examples each step learns from: a pure function of examples and seed, so that a resumed run goes on with it."""

from collections.abc import Mapping

from services.trainer.job.schedule import Prompts
from services.trainer.small_policy.examples import Example


def step_tasks(kept: Mapping[str, Example], per_step: int, steps: int, seed: int) -> list[list[str]]:
    """Task ids of every step: passes over all of them, shuffled; within a step by length, so that little is padded.

    The order within a step changes nothing else: its loss is one mean over all of its reply tokens.
    """
    prompts = Prompts(list(kept), seed)
    return [sorted(prompts.take(per_step), key=lambda task: (kept[task].tokens, task)) for _ in range(steps)]
