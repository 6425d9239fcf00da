"""A task set that grows: the tasks of the domain's former set, put before the gates again beside the new ones. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from services.author.assembly import Assembled
from services.author.judged import Judged, Result
from services.author.teachers.base import Phrasing, Proposal
from shared.contracts.tasks import PrivilegedTask


def carried(tasks: Sequence[PrivilegedTask], results: Mapping[str, tuple[Result, ...]]) -> list[Judged]:
    """The tasks as passed proposals that come first of all: what is new gives way to them.

    Only across the split a new holdout question displaces a former train one, as it does within one authoring.
    `results` are those of the tasks' golds, by task id.
    """
    by_gold: dict[str, list[PrivilegedTask]] = {}
    for task in tasks:
        by_gold.setdefault(task.provenance.gold_key, []).append(task)
    return [
        Judged(place - len(by_gold), proposed_again(found), None, results=results.get(found[0].id, ()))
        for place, found in enumerate(by_gold.values())
    ]


def proposed_again(tasks: Sequence[PrivilegedTask]) -> Proposal:
    """Tasks of one gold as the proposal that they were."""
    first = tasks[0]
    gold, *others = first.privileged.golds
    return Proposal(
        gold,
        first.archetype,
        first.order_matters,
        tuple(Phrasing(task.style, task.question) for task in tasks),
        alternatives=tuple(others),
        split=first.split,
    )


def with_origins(assembled: Assembled, former: Sequence[PrivilegedTask]) -> Assembled:
    """What was carried over keeps its own words on where it came from, and is counted apart from what was proposed."""
    provenances = {task.id: task.provenance for task in former}
    tasks = tuple(
        task.model_copy(update={"provenance": provenances.get(task.id, task.provenance)}) for task in assembled.tasks
    )
    counts = {"carried": len(former), "proposed": assembled.result.proposed - len(former)}
    result = assembled.result.model_copy(update=counts)
    return replace(assembled, tasks=tasks, result=result)
