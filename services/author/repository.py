"""Queries of the author's schema in the control database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from services.author.assembly import Assembled
from services.author.documents import (
    evidence_document,
    judged_from,
    proposal_from,
    results_document,
    results_from,
)
from services.author.judged import Judged, Result
from shared.contracts.author import Authoring, AuthoringRequest, AuthoringState, AuthoringYield, Spending
from shared.contracts.tasks import Archetype, PrivilegedTask, Split, Task
from shared.database import Pool


@dataclass(frozen=True)
class StoredAuthoring:
    """An authoring as it was asked for and as it stands."""

    request: AuthoringRequest
    view: Authoring
    weights: dict[Archetype, float]
    """Archetype to share, as resolved when it was created; empty: all alike."""
    extends: str | None
    """The authoring whose tasks its own are added to."""


@dataclass(frozen=True)
class StoredSet:
    """Which authoring holds a domain's current tasks."""

    authoring_id: str
    digest: str


class Repository:
    """Everything the author remembers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create(
        self, request: AuthoringRequest, domain_digest: str, weights: Mapping[Archetype, float], extends: str | None
    ) -> bool:
        """Store a new authoring as running; False when the id is taken."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "INSERT INTO author.authorings (authoring_id, domain, domain_digest, request, state, weights, extends)"
                " VALUES (%s, %s, %s, %s, 'running', %s, %s) ON CONFLICT DO NOTHING",
                (
                    request.authoring_id,
                    request.domain,
                    domain_digest,
                    Jsonb(request.model_dump(mode="json")),
                    Jsonb(dict(weights)),
                    extends,
                ),
            )
            return cursor.rowcount == 1

    async def set_request(self, request: AuthoringRequest) -> None:
        """Store new limits."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE author.authorings SET request = %s WHERE authoring_id = %s",
                (Jsonb(request.model_dump(mode="json")), request.authoring_id),
            )

    async def authoring(self, authoring_id: str) -> StoredAuthoring | None:
        """One authoring with its progress; None when there is none."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT * FROM author.authorings WHERE authoring_id = %s", (authoring_id,)
            )
            row: dict[str, Any] | None = await cursor.fetchone()
            if row is None:
                return None
            cursor = await connection.execute(
                "SELECT coalesce(p.reason, p.evidence->'phrasing_reasons'->>(asked.place::integer - 1)) AS reason,"
                " count(*)::integer AS questions FROM author.proposals p,"
                " jsonb_array_elements(p.phrasings) WITH ORDINALITY AS asked (phrasing, place)"
                " WHERE p.authoring_id = %s GROUP BY 1 ORDER BY 1",
                (authoring_id,),
            )
            judged = {found["reason"]: found["questions"] for found in await cursor.fetchall()}
        request = AuthoringRequest.model_validate(row["request"])
        result = None if row["result"] is None else AuthoringYield.model_validate(row["result"])
        state = AuthoringState(row["state"])
        published = result if state in (AuthoringState.DONE, AuthoringState.STOPPED) else None
        view = Authoring(
            authoring_id=authoring_id,
            domain=row["domain"],
            domain_digest=row["domain_digest"],
            teacher=request.teacher,
            model=request.model,
            state=state,
            proposed=sum(judged.values()),
            kept=judged.get(None, 0) if published is None else published.kept,
            rejected={reason: count for reason, count in judged.items() if reason is not None},
            spending=None if request.model is None else await self._spending(authoring_id),
            error=row["error"],
            task_set_digest=row["task_set_digest"],
            result=published,
        )
        weights = {Archetype(name): float(share) for name, share in row["weights"].items()}
        return StoredAuthoring(request, view, weights, row["extends"])

    async def _spending(self, authoring_id: str) -> Spending:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT coalesce(outcome, 'in_flight') AS outcome, count(*) AS calls,"
                " bool_or(state = 'landed' AND cost_usd IS NULL) AS unpriced, coalesce(sum(cost_usd), 0) AS cost,"
                " coalesce(sum((usage->>'input')::bigint), 0) AS input,"
                " coalesce(sum((usage->>'output')::bigint), 0) AS output,"
                " coalesce(sum((usage->>'cache_read')::bigint), 0) AS cache_read,"
                " coalesce(sum((usage->>'cache_write')::bigint), 0) AS cache_write,"
                " sum(doubts) AS doubts, sum(doubt_usd) AS doubt_usd FROM author.calls"
                " WHERE authoring_id = %s AND state <> 'withdrawn' GROUP BY 1 ORDER BY 1",
                (authoring_id,),
            )
            rows: list[dict[str, Any]] = await cursor.fetchall()
        return Spending(
            calls={row["outcome"]: row["calls"] for row in rows},
            input_tokens=sum(row["input"] for row in rows),
            output_tokens=sum(row["output"] for row in rows),
            cache_read_tokens=sum(row["cache_read"] for row in rows),
            cache_write_tokens=sum(row["cache_write"] for row in rows),
            cost_usd=None if any(row["unpriced"] for row in rows) else sum(row["cost"] for row in rows),
            doubts=sum(row["doubts"] for row in rows),
            doubt_usd=sum(row["doubt_usd"] for row in rows),
        )

    async def running(self) -> list[str]:
        """Ids of the authorings that some author runs, or ran when it was killed."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute("SELECT authoring_id FROM author.authorings WHERE state = 'running'")
            return [str(row["authoring_id"]) for row in await cursor.fetchall()]

    async def state(self, authoring_id: str) -> AuthoringState:
        """Where it stands, without its counts. Raises TypeError for an unknown id."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT state FROM author.authorings WHERE authoring_id = %s", (authoring_id,)
            )
            row: dict[str, Any] | None = await cursor.fetchone()
        if row is None:
            raise TypeError(f"no authoring {authoring_id!r}")
        return AuthoringState(row["state"])

    async def set_state(self, authoring_id: str, state: AuthoringState, error: str = "") -> None:
        """Change where it stands; a finished one stays finished."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE author.authorings SET state = %s, error = %s WHERE authoring_id = %s AND state <> 'done'",
                (state, error, authoring_id),
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
                Jsonb(entry.proposal.columns),
                entry.proposal.difficulty,
                Jsonb(entry.proposal.alternatives),
                entry.proposal.split,
                Jsonb(evidence_document(entry)),
            )
            for entry in judged
        ]
        async with self._pool.connection() as connection, connection.transaction():
            await connection.cursor().executemany(
                "INSERT INTO author.proposals"
                " (authoring_id, position, archetype, gold, order_matters, phrasings, reason, columns, difficulty,"
                " alternatives, split, evidence)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                rows,
            )

    async def positions(self, authoring_id: str) -> set[int]:
        """Which proposals are judged."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT position FROM author.proposals WHERE authoring_id = %s", (authoring_id,)
            )
            return {int(str(row["position"])) for row in await cursor.fetchall()}

    async def proposals(self, authoring_id: str) -> list[Judged]:
        """All stored proposals in order."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT * FROM author.proposals WHERE authoring_id = %s ORDER BY position", (authoring_id,)
            )
            rows: list[dict[str, Any]] = await cursor.fetchall()
        return [judged_from(row["position"], proposal_from(row), row["reason"], row["evidence"]) for row in rows]

    async def finish(self, authoring_id: str, assembled: Assembled, state: AuthoringState, error: str = "") -> None:
        """Store the task set and the yield in one transaction: from then on it is the domain's current one."""
        rows = [
            (
                authoring_id,
                position,
                task.id,
                task.split,
                Jsonb(task.model_dump(mode="json", exclude={"privileged"})),
                Jsonb(task.privileged.reference),
                Jsonb(results_document(results)),
            )
            for position, (task, results) in enumerate(zip(assembled.tasks, assembled.results, strict=True))
        ]
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("DELETE FROM author.tasks WHERE authoring_id = %s", (authoring_id,))
            await connection.cursor().executemany(
                "INSERT INTO author.tasks (authoring_id, position, task_id, split, task, reference, results)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                rows,
            )
            await connection.execute(
                "UPDATE author.authorings SET state = %s, error = %s, task_set_digest = %s, result = %s,"
                " finished_at = now() WHERE authoring_id = %s",
                (state, error, assembled.digest, Jsonb(assembled.result.model_dump(mode="json")), authoring_id),
            )

    async def current_set(self, domain: str) -> StoredSet | None:
        """The authoring of a domain that was published last; it stays so while it goes on."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT authoring_id, task_set_digest FROM author.authorings"
                " WHERE domain = %s AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 1",
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

    async def task_results(self, authoring_id: str) -> dict[str, tuple[Result, ...]]:
        """What the golds of its tasks returned, by task id."""
        rows = await self._task_rows("task_id, results", authoring_id, None)
        return {row["task_id"]: results_from(row["results"]) for row in rows}

    async def _task_rows(self, columns: str, authoring_id: str, split: Split | None) -> list[dict[str, Any]]:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                f"SELECT {columns} FROM author.tasks WHERE authoring_id = %s AND (%s::text IS NULL OR split = %s)"
                " ORDER BY position",
                (authoring_id, split, split),
            )
            return await cursor.fetchall()
