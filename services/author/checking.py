"""Which of a domain's tasks its bundle, as it is now, no longer bears."""

from collections.abc import Sequence

from services.author.decisions import ACCEPTED
from services.author.gates import ACCEPTABLE, MEANING, Reason
from services.author.grounds import Grounds
from services.author.growth import proposed_again
from services.author.judging import judge
from shared.contracts.review import BrokenTask
from shared.contracts.tasks import PrivilegedTask

BATCH_TASKS = 160
"""Tasks judged together."""


async def broken_tasks(grounds: Grounds, tasks: Sequence[PrivilegedTask]) -> list[BrokenTask]:
    """Those that some gate which sees one task at a time now stops, in order.

    Raises GroundsBroken, ServiceProblem, ServiceUnreachable.
    """
    broken: list[BrokenTask] = []
    for start in range(0, len(tasks), BATCH_TASKS):
        part = tasks[start : start + BATCH_TASKS]
        verdicts = await judge(grounds, [proposed_again([task]) for task in part])
        for task, verdict in zip(part, verdicts, strict=True):
            reason = verdict.reasons[0]
            overruled = reason in ACCEPTABLE and ACCEPTED in task.provenance.edits
            if reason is not None and not overruled:
                broken.append(_broken(task, reason))
    return broken


def _broken(task: PrivilegedTask, reason: Reason) -> BrokenTask:
    return BrokenTask(
        task_id=task.id,
        question=task.question,
        split=task.split,
        difficulty=task.difficulty,
        reason=reason,
        meaning=MEANING[reason],
    )
