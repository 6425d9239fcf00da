"""Tasks that flipped between two sides of a delta, each with a row that shows why. Pure."""

from collections.abc import Iterable, Sequence

from services.rollout.measuring.report import TaskRows
from services.rollout.samplings.records import RowFacts
from shared.contracts.measuring import Flip
from shared.contracts.verifier import Status

Side = Sequence[Sequence[TaskRows]]
"""The samplings of one side, each task by task."""


def flips(task_ids: Iterable[str], before: Side, after: Side) -> list[Flip]:
    """In the order of `task_ids`; each must have scored rows on both sides."""
    olds, news = _by_task(before), _by_task(after)
    return [_flip(olds[task_id], news[task_id]) for task_id in task_ids]


def _by_task(side: Side) -> dict[str, TaskRows]:
    """Each task with its rows of every sampling of the side."""
    found: dict[str, TaskRows] = {}
    for sampling in side:
        for group in sampling:
            known = found.get(group.task.task_id)
            found[group.task.task_id] = group if known is None else TaskRows(group.task, known.rows + group.rows)
    return found


def _flip(old: TaskRows, new: TaskRows) -> Flip:
    before, after = (side.passed / len(side.scored) for side in (old, new))
    worse = old if before < after else new
    return Flip(
        task_id=old.task.task_id,
        question=old.task.question,
        before=before,
        after=after,
        row_id=_telling(worse.scored),
    )


def _telling(rows: Sequence[RowFacts]) -> int | None:
    """The first that ran and was wrong, else the first that failed otherwise."""
    failed = sorted((row for row in rows if row.status != Status.MATCH), key=lambda row: row.status != Status.MISMATCH)
    return failed[0].row_id if failed else None
