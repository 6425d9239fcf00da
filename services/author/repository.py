"""Queries of the author's schema in the control database."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from services.author.assembly import Assembled, Judged
from services.author.gates import Reason
from services.author.teachers.base import Phrasing, Proposal
from shared.contracts.author import Authoring, AuthoringRequest, AuthoringState, AuthoringYield
from shared.contracts.tasks import Archetype, PrivilegedTask, Split, Task
from shared.database import Pool


@dataclass(frozen=True)
class StoredAuthoring:
    """An authoring as it was asked for and as it stands."""

    request: AuthoringRequest
    view: Authoring


@dataclass(frozen=True)
class StoredSet:
    """Which authoring holds a domain's current tasks."""

    authoring_id: str
    digest: str


class Repository:
    """Everything the author remembers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create(self, request: AuthoringRequest, domain_digest: str) -> bool:
        """Store a new authoring as running; False when the id is taken."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "INSERT INTO author.authorings (authoring_id, domain, domain_digest, request, state)"
                " VALUES (%s, %s, %s, %s, 'running') ON CONFLICT DO NOTHING",
                (request.authoring_id, request.domain, domain_digest, Jsonb(request.model_dump(mode="json"))),
            )
            return cursor.rowcount == 1

    async def authoring(self, authoring_id: str) -> StoredAuthoring | None:
        """One authoring with its progress; None when there is none."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT a.*, coalesce(p.proposed, 0) AS proposed, coalesce(p.kept, 0) AS kept FROM author.authorings a,"
                " LATERAL (SELECT sum(jsonb_array_length(phrasings)) AS proposed,"
                "  sum(jsonb_array_length(phrasings)) FILTER (WHERE reason IS NULL) AS kept"
                "  FROM author.proposals WHERE authoring_id = a.authoring_id) p WHERE authoring_id = %s",
                (authoring_id,),
            )
            row: dict[str, Any] | None = await cursor.fetchone()
        if row is None:
            return None
        request = AuthoringRequest.model_validate(row["request"])
        result = None if row["result"] is None else AuthoringYield.model_validate(row["result"])
        view = Authoring(
            authoring_id=authoring_id,
            domain=row["domain"],
            domain_digest=row["domain_digest"],
            teacher=request.teacher,
            state=AuthoringState(row["state"]),
            proposed=row["proposed"],
            kept=row["kept"] if result is None else result.kept,
            error=row["error"],
            task_set_digest=row["task_set_digest"],
            result=result,
        )
        return StoredAuthoring(request, view)

    async def set_state(self, authoring_id: str, state: AuthoringState, error: str = "") -> None:
        """Change where it stands; a finished one stays finished."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE author.authorings SET state = %s, error = %s WHERE authoring_id = %s AND state <> 'done'",
                (state, error, authoring_id),
            )

    async def fail_running(self, error: str) -> None:
        """Mark what a former process left running."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE author.authorings SET state = 'failed', error = %s WHERE state = 'running'", (error,)
            )

    async def add_proposals(self, authoring_id: str, judged: Sequence[Judged]) -> None:
        """Store a batch, all or nothing. Positions that are stored already stay as they are."""
        rows = [
            (
                authoring_id,
                entry.position,
                entry.proposal.archetype,
                entry.proposal.gold,
                entry.proposal.order_matters,
                Jsonb([[asked.style, asked.question] for asked in entry.proposal.phrasings]),
                entry.reason,
            )
            for entry in judged
        ]
        async with self._pool.connection() as connection, connection.transaction():
            await connection.cursor().executemany(
                "INSERT INTO author.proposals"
                " (authoring_id, position, archetype, gold, order_matters, phrasings, reason)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                rows,
            )

    async def proposals(self, authoring_id: str) -> list[Judged]:
        """All stored proposals in order."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT * FROM author.proposals WHERE authoring_id = %s ORDER BY position", (authoring_id,)
            )
            rows: list[dict[str, Any]] = await cursor.fetchall()
        return [
            Judged(
                row["position"],
                Proposal(
                    row["gold"],
                    Archetype(row["archetype"]),
                    row["order_matters"],
                    tuple(Phrasing(style, question) for style, question in row["phrasings"]),
                ),
                None if row["reason"] is None else Reason(row["reason"]),
            )
            for row in rows
        ]

    async def finish(self, authoring_id: str, assembled: Assembled) -> None:
        """Store the task set and the yield in one transaction: from then on it is the domain's current one."""
        rows = [
            (
                authoring_id,
                position,
                task.id,
                task.split,
                Jsonb(task.model_dump(mode="json", exclude={"privileged"})),
                task.privileged.reference,
            )
            for position, task in enumerate(assembled.tasks)
        ]
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("DELETE FROM author.tasks WHERE authoring_id = %s", (authoring_id,))
            await connection.cursor().executemany(
                "INSERT INTO author.tasks (authoring_id, position, task_id, split, task, reference)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                rows,
            )
            await connection.execute(
                "UPDATE author.authorings SET state = 'done', error = '', task_set_digest = %s, result = %s,"
                " finished_at = now() WHERE authoring_id = %s",
                (assembled.digest, Jsonb(assembled.result.model_dump(mode="json")), authoring_id),
            )

    async def current_set(self, domain: str) -> StoredSet | None:
        """The newest finished authoring of a domain."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT authoring_id, task_set_digest FROM author.authorings WHERE domain = %s AND state = 'done'"
                " ORDER BY finished_at DESC LIMIT 1",
                (domain,),
            )
            row: dict[str, Any] | None = await cursor.fetchone()
        return None if row is None else StoredSet(row["authoring_id"], row["task_set_digest"])

    async def tasks(self, authoring_id: str, split: Split | None) -> list[Task]:
        """Its tasks in order; the references are not read."""
        rows = await self._task_rows("task", authoring_id, split)
        return [Task.model_validate(row["task"]) for row in rows]

    async def privileged_tasks(self, authoring_id: str, split: Split | None) -> list[PrivilegedTask]:
        """Its tasks in order, with their golds."""
        rows = await self._task_rows("task, reference", authoring_id, split)
        return [
            PrivilegedTask.model_validate({**row["task"], "privileged": {"reference": row["reference"]}})
            for row in rows
        ]

    async def _task_rows(self, columns: str, authoring_id: str, split: Split | None) -> list[dict[str, Any]]:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                f"SELECT {columns} FROM author.tasks WHERE authoring_id = %s AND (%s::text IS NULL OR split = %s)"
                " ORDER BY position",
                (authoring_id, split, split),
            )
            return await cursor.fetchall()
