"""Which tasks a small policy learns from and which measure it, and the digest of what makes it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from services.trainer.small_policy.settings import Recipe
from shared.contracts.tasks import PrivilegedTask, Split, Task
from shared.ids import sha256_hex

CODE_VERSION = 3
"""Raise it when a change here alters the weights that equal inputs give: cached policies are then built anew."""

WARM_START_FOLD, SLICE_FOLD = 0, 1
"""Halves of the train split: the first is learned, the second feeds GRPO and lends the slice that is measured."""


class TasksUnusable(ValueError):
    """The task set cannot make a policy; the message says why."""


@dataclass(frozen=True)
class WarmStart:
    """The tasks of one build."""

    learn: list[PrivilegedTask]
    measure: list[PrivilegedTask]


def choose(tasks: Sequence[Task], slice_tasks: int, seed: int) -> WarmStart:
    """Fold 0 of train to learn, a seeded draw of fold 1 to measure; the holdout is never touched.

    Raises TasksUnusable.
    """
    train = [task for task in tasks if task.split is Split.TRAIN]
    golden = [task for task in train if isinstance(task, PrivilegedTask)]
    if len(golden) < len(train):
        raise TasksUnusable("the author sent tasks without golds: the token needs the `gold` scope")
    golden.sort(key=lambda task: task.id)
    learn = [task for task in golden if task.provenance.fold == WARM_START_FOLD]
    candidates = [task for task in golden if task.provenance.fold == SLICE_FOLD]
    if not learn or not candidates:
        raise TasksUnusable(
            f"{len(learn)} train tasks to learn from and {len(candidates)} to measure on: author more tasks first"
        )
    return WarmStart(learn, Random(seed).sample(candidates, min(slice_tasks, len(candidates))))


def tasks_digest(tasks: Sequence[PrivilegedTask]) -> str:
    """SHA-256 over the sorted ids and golds."""
    return sha256_hex(json.dumps(sorted((task.id, task.privileged.reference) for task in tasks)))


def policy_digest(tasks: WarmStart, domain_digest: str, recipe: Recipe, seed: int) -> str:
    """SHA-256 of everything that decides the weights. The slice is part of it: it decides when training stops."""
    made_of = [
        CODE_VERSION,
        tasks_digest(tasks.learn),
        tasks_digest(tasks.measure),
        domain_digest,
        recipe.model_dump(),
        seed,
    ]
    return sha256_hex(json.dumps(made_of, sort_keys=True))
