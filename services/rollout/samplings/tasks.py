"""Tasks with their golds from the author, and which of them a sampling asks."""

import asyncio
import json

from services.rollout.samplings.records import PlannedTask
from shared.clients.author import AuthorClient
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.contracts.rollout import SamplingRequest
from shared.contracts.tasks import PrivilegedTask
from shared.errors import Invalid, Unavailable
from shared.ids import sha256_hex

NAMED_IN_ERRORS = 5


class TaskDirectory:
    """The author's tasks by domain, kept until a caller asks for fresh ones or for one that is not there."""

    def __init__(self, author: AuthorClient) -> None:
        self._author = author
        self._tasks: dict[str, dict[str, PrivilegedTask]] = {}
        self._lock = asyncio.Lock()

    async def all(self, domain: str) -> dict[str, PrivilegedTask]:
        """The domain's current tasks by id, fetched now. Raises Unavailable, Invalid."""
        async with self._lock:
            try:
                task_set = await self._author.tasks(domain, privileged=True)
            except ServiceUnreachable as error:
                raise Unavailable(f"{error}. Nothing was started") from error
            except ServiceProblem as error:
                raise Invalid(f"the author has no tasks of domain {domain!r}: {error}") from error
            tasks = [task for task in task_set.tasks if isinstance(task, PrivilegedTask)]
            if len(tasks) < len(task_set.tasks):
                raise Invalid("the author sent tasks without golds: the rollout service's token needs the `gold` scope")
            self._tasks[domain] = {task.id: task for task in tasks}
            return self._tasks[domain]

    async def some(self, domain: str, task_ids: list[str]) -> dict[str, PrivilegedTask]:
        """Those of `task_ids` that the author has, fetched only when one is not known yet. Raises as `all`."""
        known = self._tasks.get(domain, {})
        if any(task_id not in known for task_id in task_ids):
            known = await self.all(domain)
        return {task_id: known[task_id] for task_id in task_ids if task_id in known}


def choose(tasks: dict[str, PrivilegedTask], request: SamplingRequest) -> list[PrivilegedTask]:
    """The tasks a request asks, in an order that mixes kinds. Raises Invalid when there are none or one is unknown.

    `limit` draws by the hash of the task id, so two samplings with one limit ask the same tasks whatever their seeds,
    and a smaller limit asks a part of a larger one's.
    """
    if request.task_ids is not None:
        return named(tasks, request.task_ids)
    chosen = [
        task for task in tasks.values() if task.split is request.split and request.fold in (None, task.provenance.fold)
    ]
    chosen.sort(key=lambda task: sha256_hex(task.id))
    if not chosen:
        fold = "" if request.fold is None else f", fold {request.fold}"
        raise Invalid(
            f"domain {request.domain!r} has no task in split {request.split}{fold}; `sqlclimb author` makes some"
        )
    return chosen[: request.limit]


def named(tasks: dict[str, PrivilegedTask], task_ids: list[str]) -> list[PrivilegedTask]:
    """Exactly these tasks. Raises Invalid for an empty list, one named twice, or one the author does not have."""
    unknown = [task_id for task_id in task_ids if task_id not in tasks]
    if unknown:
        raise Invalid(f"{len(unknown)} tasks are unknown to the author: {unknown[:NAMED_IN_ERRORS]}; nothing was done")
    if not task_ids or len(set(task_ids)) < len(task_ids):
        raise Invalid("`task_ids` must name at least one task, and each task once")
    return [tasks[task_id] for task_id in task_ids]


def task_set_digest(tasks: list[PrivilegedTask]) -> str:
    """SHA-256 over the sorted ids and golds of the tasks asked: equal for two samplings that can be paired."""
    return sha256_hex(json.dumps(sorted([task.id, task.privileged.reference] for task in tasks)))


def planned(task: PrivilegedTask) -> PlannedTask:
    """The task without its gold."""
    return PlannedTask(task.id, task.question, task.archetype, task.difficulty, task.style, task.split)
