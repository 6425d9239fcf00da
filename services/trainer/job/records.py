"""What a job writes into the control database, fenced: only while the run still has the job's attempt."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import psycopg
import stamina
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from services.trainer.failures import Fenced, RunFailed
from shared.contracts.run_config import RunConfig
from shared.contracts.trainer import AttemptRecord, CodeVersion, CurvePoint, RunEvent, RunState, Step

Result = TypeVar("Result")

DATABASE_OUTAGE_SECONDS = 300.0
"""How long a job waits for the control database before its run fails."""


class RunRecords:
    """The rows of one attempt of one run."""

    def __init__(self, dsn: str, run_id: str, attempt: int, outage_seconds: float = DATABASE_OUTAGE_SECONDS) -> None:
        self._dsn = dsn
        self.run_id = run_id
        self.attempt = attempt
        self._outage_seconds = outage_seconds

    def begin(self, versions: dict[str, str], code: CodeVersion | None = None) -> RunConfig:
        """The job is up: the run is `running`, and what it runs is recorded. Returns its config. Raises Fenced."""
        code = code or CodeVersion(version=versions.get("sqlclimb", ""))
        record = AttemptRecord(attempt=self.attempt, at=datetime.now(UTC), code=code, versions=versions)

        def write(connection: psycopg.Connection[tuple[object, ...]]) -> RunConfig:
            with connection.transaction():
                row = connection.execute(
                    "UPDATE trainer.runs SET state = 'running', versions = %s "
                    "WHERE run_id = %s AND attempt = %s AND state IN ('pending', 'running') RETURNING config",
                    (Jsonb(versions), self.run_id, self.attempt),
                ).fetchone()
                config = self._written(row)[0]
                connection.execute(
                    "INSERT INTO trainer.attempts (run_id, attempt, record) VALUES (%s, %s, %s) "
                    "ON CONFLICT (run_id, attempt) DO UPDATE SET record = excluded.record",
                    (self.run_id, self.attempt, Jsonb(record.model_dump(mode="json"))),
                )
            return RunConfig.model_validate(config)

        return self._patiently(write)

    def add_step(self, step: Step) -> bool:
        """Log a step; logging it again replaces it. Returns whether someone asked the run to stop. Raises Fenced."""

        def write(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
            with connection.transaction():
                row = connection.execute(
                    "SELECT stop_requested FROM trainer.runs WHERE run_id = %s AND attempt = %s FOR SHARE",
                    (self.run_id, self.attempt),
                ).fetchone()
                stop = bool(self._written(row)[0])
                connection.execute(
                    "INSERT INTO trainer.steps (run_id, step, record) VALUES (%s, %s, %s) "
                    "ON CONFLICT (run_id, step) DO UPDATE SET record = excluded.record",
                    (self.run_id, step.step, Jsonb(step.model_dump(mode="json"))),
                )
            return stop

        return self._patiently(write)

    def add_event(self, event: RunEvent) -> None:
        """Tell people something. Raises Fenced."""

        def write(connection: psycopg.Connection[tuple[object, ...]]) -> None:
            row = connection.execute(
                "INSERT INTO trainer.events (run_id, record) SELECT run_id, %s FROM trainer.runs "
                "WHERE run_id = %s AND attempt = %s RETURNING event_id",
                (Jsonb(event.model_dump(mode="json")), self.run_id, self.attempt),
            ).fetchone()
            self._written(row)

        self._patiently(write)

    def events(self) -> list[RunEvent]:
        """Everything told of the run, oldest first."""

        def read(connection: psycopg.Connection[tuple[object, ...]]) -> list[RunEvent]:
            query = "SELECT record FROM trainer.events WHERE run_id = %s ORDER BY event_id"
            return [RunEvent.model_validate(row[0]) for row in connection.execute(query, (self.run_id,)).fetchall()]

        return self._patiently(read)

    def steps(self) -> list[Step]:
        """Every logged step, in order."""

        def read(connection: psycopg.Connection[tuple[object, ...]]) -> list[Step]:
            query = "SELECT record FROM trainer.steps WHERE run_id = %s ORDER BY step"
            return [Step.model_validate(row[0]) for row in connection.execute(query, (self.run_id,)).fetchall()]

        return self._patiently(read)

    def queue_evaluation(self, point: CurvePoint) -> None:
        """Remember a sampling that measures a checkpoint; the API reads its report. Raises Fenced."""

        def write(connection: psycopg.Connection[tuple[object, ...]]) -> None:
            with connection.transaction():
                row = connection.execute(
                    "SELECT 1 FROM trainer.runs WHERE run_id = %s AND attempt = %s FOR SHARE",
                    (self.run_id, self.attempt),
                ).fetchone()
                self._written(row)
                done = Jsonb(point.model_dump(mode="json")) if point.error else None
                connection.execute(
                    "INSERT INTO trainer.evaluations (run_id, step, kind, sampling_id, record) "
                    "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                    (self.run_id, point.step, point.kind, point.sampling_id, done),
                )

        self._patiently(write)

    def curve(self) -> list[CurvePoint]:
        """What has been measured so far, by step."""

        def read(connection: psycopg.Connection[tuple[object, ...]]) -> list[CurvePoint]:
            query = "SELECT record FROM trainer.evaluations WHERE run_id = %s AND record IS NOT NULL ORDER BY step"
            return [CurvePoint.model_validate(row[0]) for row in connection.execute(query, (self.run_id,)).fetchall()]

        return self._patiently(read)

    def has_step(self, step: int) -> bool:
        """Whether that step is logged."""

        def read(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
            query = "SELECT 1 FROM trainer.steps WHERE run_id = %s AND step = %s"
            return connection.execute(query, (self.run_id, step)).fetchone() is not None

        return self._patiently(read)

    def stop_requested(self) -> bool:
        """Whether someone asked the run to stop. Raises Fenced."""

        def read(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
            query = "SELECT stop_requested FROM trainer.runs WHERE run_id = %s AND attempt = %s"
            return bool(self._written(connection.execute(query, (self.run_id, self.attempt)).fetchone())[0])

        return self._patiently(read)

    def broke(self, why: str) -> None:
        """The attempt is about to die of `why`: the API tells it, and decides what follows. Raises Fenced."""

        def write(connection: psycopg.Connection[tuple[object, ...]]) -> None:
            row = connection.execute(
                "UPDATE trainer.runs SET error = CASE WHEN finished_at IS NULL THEN %s ELSE error END "
                "WHERE run_id = %s AND attempt = %s RETURNING state",
                (why, self.run_id, self.attempt),
            ).fetchone()
            self._written(row)

        self._patiently(write)

    def finish(self, state: RunState, error: str = "") -> None:
        """The run has ended, unless it already had. Raises Fenced."""

        def write(connection: psycopg.Connection[tuple[object, ...]]) -> None:
            row = connection.execute(
                "UPDATE trainer.runs SET state = CASE WHEN finished_at IS NULL THEN %s ELSE state END, "
                "error = CASE WHEN finished_at IS NULL THEN %s ELSE error END, "
                "finished_at = coalesce(finished_at, now()) WHERE run_id = %s AND attempt = %s RETURNING state",
                (state.value, error, self.run_id, self.attempt),
            ).fetchone()
            self._written(row)

        self._patiently(write)

    def _written(self, row: tuple[object, ...] | None) -> tuple[object, ...]:
        if row is None:
            raise Fenced(f"run {self.run_id} has a newer attempt than {self.attempt}: this one stops without a trace")
        return row

    def _patiently(self, work: Callable[[psycopg.Connection[tuple[object, ...]]], Result]) -> Result:
        try:
            for attempt in stamina.retry_context(
                on=psycopg.OperationalError, attempts=None, timeout=self._outage_seconds
            ):
                with (
                    attempt,
                    psycopg.connect(self._dsn, autocommit=True, connect_timeout=5, row_factory=tuple_row) as connection,
                ):
                    return work(connection)
        except psycopg.OperationalError as error:
            raise RunFailed(
                f"the control database gave no answer for {self._outage_seconds:.0f} s ({type(error).__name__}). "
                "Checkpoints are kept; start the run again to go on"
            ) from error
        raise AssertionError("a retry context ends by return or raise")
