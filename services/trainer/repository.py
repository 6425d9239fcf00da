"""Queries of the runs API."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb

from shared.contracts.run_config import RunConfig
from shared.contracts.trainer import CurvePoint, EventKind, Run, RunEvent, RunState, Step
from shared.database import Pool

_RUN = """
SELECT r.run_id, r.config, r.state, r.attempt, r.versions, r.error, r.created_at, r.finished_at, r.stop_requested,
       CASE WHEN (s.record ->> 'attempt')::int = r.attempt THEN 0 ELSE r.restarts END AS restarts,
       coalesce(s.step, 0) AS steps_done, coalesce(s.record ->> 'adapter_name', '') AS last_adapter,
       coalesce((SELECT jsonb_agg(coalesce(e.record,
                   jsonb_build_object('step', e.step, 'kind', e.kind, 'sampling_id', e.sampling_id)) ORDER BY e.step)
                 FROM trainer.evaluations e WHERE e.run_id = r.run_id), '[]') AS curve,
       coalesce((SELECT jsonb_agg(a.record ORDER BY a.attempt) FROM trainer.attempts a WHERE a.run_id = r.run_id), '[]')
         AS attempts
FROM trainer.runs r
LEFT JOIN LATERAL (SELECT step, record FROM trainer.steps WHERE run_id = r.run_id ORDER BY step DESC LIMIT 1) s ON true
"""


@dataclass(frozen=True)
class StoredRun:
    """A run and what only the service needs to know of it."""

    run: Run
    stop_requested: bool
    restarts: int
    """Attempts begun by the service since somebody started the run, or since a step was done."""


class RunRepository:
    """Runs and steps in the control database."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, run_id: str) -> StoredRun | None:
        """One run, or None."""
        found = await self._runs("WHERE r.run_id = %s", (run_id,))
        return found[0] if found else None

    async def active(self, ended_within_seconds: float) -> list[StoredRun]:
        """Runs that have not ended, or did so lately."""
        lately = "r.finished_at > now() - make_interval(secs => %s)"
        return await self._runs(f"WHERE r.finished_at IS NULL OR {lately}", (ended_within_seconds,))

    async def newest(self, limit: int) -> list[Run]:
        """The newest runs."""
        return [stored.run for stored in await self._runs("ORDER BY r.created_at DESC LIMIT %s", (limit,))]

    async def create(self, run_id: str, config: RunConfig) -> bool:
        """A new run at attempt 1; False when the id is taken."""
        return await self._changed(
            "INSERT INTO trainer.runs (run_id, config, state, attempt) VALUES (%s, %s, 'pending', 1) "
            "ON CONFLICT DO NOTHING RETURNING run_id",
            (run_id, Jsonb(config.model_dump(mode="json"))),
        )

    async def next_attempt(self, run_id: str, attempt: int, config: RunConfig) -> bool:
        """Somebody begins the attempt after `attempt`, which fences it; False when another caller was faster."""
        return await self._changed(
            "UPDATE trainer.runs SET attempt = attempt + 1, state = 'pending', stop_requested = false, error = '', "
            "restarts = 0, finished_at = NULL, config = %s "
            "WHERE run_id = %s AND attempt = %s AND state <> 'done' RETURNING run_id",
            (Jsonb(config.model_dump(mode="json")), run_id, attempt),
        )

    async def restart(self, stored: StoredRun, message: str) -> bool:
        """Begin the attempt after one that died, and tell so; False when the run has ended or gone on meanwhile."""
        run = stored.run
        event = RunEvent(
            kind=EventKind.RESTARTED,
            message=message,
            step=run.steps_done,
            attempt=run.attempt + 1,
            at=datetime.now(UTC),
        )
        return await self._changed(
            "WITH run AS (UPDATE trainer.runs SET attempt = attempt + 1, state = 'pending', error = '', restarts = %s "
            "WHERE run_id = %s AND attempt = %s AND finished_at IS NULL AND NOT stop_requested RETURNING run_id) "
            "INSERT INTO trainer.events (run_id, record) SELECT run_id, %s FROM run RETURNING run_id",
            (stored.restarts + 1, run.run_id, run.attempt, Jsonb(event.model_dump(mode="json"))),
        )

    async def request_stop(self, run_id: str) -> None:
        """Ask the run's job to end after the step in progress."""
        await self._changed(
            "UPDATE trainer.runs SET stop_requested = true WHERE run_id = %s RETURNING run_id", (run_id,)
        )

    async def finish(self, run_id: str, attempt: int, state: RunState, error: str = "") -> bool:
        """End a run from outside its job; False when it had ended, or a newer attempt has begun."""
        return await self._changed(
            "UPDATE trainer.runs SET state = %s, error = %s, finished_at = now() "
            "WHERE run_id = %s AND attempt = %s AND finished_at IS NULL RETURNING run_id",
            (state.value, error, run_id, attempt),
        )

    async def steps(self, run_id: str, after: int) -> list[Step]:
        """Steps above `after`, in order."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT record FROM trainer.steps WHERE run_id = %s AND step > %s ORDER BY step", (run_id, after)
            )
            return [Step.model_validate(row["record"]) for row in await cursor.fetchall()]

    async def events(self, run_id: str) -> list[RunEvent]:
        """What was told of a run, oldest first."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT record FROM trainer.events WHERE run_id = %s ORDER BY event_id", (run_id,)
            )
            return [RunEvent.model_validate(row["record"]) for row in await cursor.fetchall()]

    async def unmeasured(self) -> list[tuple[str, CurvePoint]]:
        """Run and checkpoint of every evaluation without a result."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT run_id, step, kind, sampling_id FROM trainer.evaluations WHERE record IS NULL"
            )
            rows = await cursor.fetchall()
        return [(str(row["run_id"]), CurvePoint(**{key: row[key] for key in row if key != "run_id"})) for row in rows]

    async def measured(self, run_id: str, point: CurvePoint) -> None:
        """Keep an evaluation's result."""
        await self._changed(
            "UPDATE trainer.evaluations SET record = %s WHERE run_id = %s AND step = %s AND kind = %s RETURNING run_id",
            (Jsonb(point.model_dump(mode="json")), run_id, point.step, point.kind),
        )

    async def _runs(self, condition: str, values: tuple[Any, ...]) -> list[StoredRun]:
        async with self._pool.connection() as connection:
            rows = await (await connection.execute(_RUN + condition, values)).fetchall()
        return [_stored(row) for row in rows]

    async def _changed(self, statement: str, values: tuple[Any, ...]) -> bool:
        async with self._pool.connection() as connection:
            return await (await connection.execute(statement, values)).fetchone() is not None


def _stored(row: dict[str, Any]) -> StoredRun:
    fields = dict(row)
    stop_requested, restarts = fields.pop("stop_requested"), fields.pop("restarts")
    policy = f"{fields['run_id']}@{fields['steps_done']}" if fields["steps_done"] else ""
    return StoredRun(Run(**fields, last_policy=policy), stop_requested, restarts)
