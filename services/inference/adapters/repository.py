"""The registry's queries: one row for every adapter name ever published."""

from dataclasses import dataclass
from pathlib import Path

from psycopg.types.json import Jsonb

from services.inference.adapters.fetching import Files
from shared.contracts.inference import Adapter, AdapterRequest, AdapterState, Probe, ProbeResult
from shared.database import Pool
from shared.ids import ServedName, parse_served_name


@dataclass(frozen=True)
class Record:
    """A row: what people see, and what loading it again needs."""

    adapter: Adapter
    probe: Probe
    config_digest: str | None
    folder: Path | None
    removed: bool

    @property
    def name(self) -> str:
        """The served name."""
        return self.adapter.name


class Repository:
    """Rows of `inference.adapters`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, name: str) -> Record | None:
        """One row, removed ones too. A name that no adapter can have does not reach the database."""
        try:
            parse_served_name(name)
        except ValueError:
            return None
        async with self._pool.connection() as connection:
            cursor = await connection.execute("SELECT * FROM inference.adapters WHERE name = %s", [name])
            row = await cursor.fetchone()
        return None if row is None else _record(row)

    async def all(self) -> list[Record]:
        """Rows that were not removed, newest first."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT * FROM inference.adapters WHERE NOT removed ORDER BY created_at DESC, name"
            )
            return [_record(row) for row in await cursor.fetchall()]

    async def begin(self, name: str, parts: ServedName, request: AdapterRequest, probe: Probe) -> None:
        """A publish starts: the row is `loading`."""
        async with self._pool.connection() as connection:
            await connection.execute(
                """INSERT INTO inference.adapters (name, run_id, step, uri, base, digest, kind, probe_request, state)
                VALUES (%(name)s, %(run)s, %(step)s, %(uri)s, %(base)s, %(digest)s, %(kind)s, %(probe)s, 'loading')
                ON CONFLICT (name) DO UPDATE SET uri = excluded.uri, probe_request = excluded.probe_request,
                    state = 'loading', reason = '', removed = false, updated_at = now()""",
                {
                    "name": name,
                    "run": parts.run_id,
                    "step": parts.step,
                    "uri": request.uri,
                    "base": request.base,
                    "digest": request.digest,
                    "kind": request.kind,
                    "probe": Jsonb(probe.model_dump()),
                },
            )

    async def loading(self, name: str, files: Files) -> None:
        """The engines are about to see it: from now on the name stands for this configuration."""
        async with self._pool.connection() as connection:
            await connection.execute(
                """UPDATE inference.adapters SET folder = %s, config_digest = %s, tensors_placed = %s, translated = %s
                WHERE name = %s""",
                [str(files.folder), files.config_digest, files.tensors_placed, files.translated, name],
            )

    async def pin(self, name: str, pinned: bool) -> None:
        """Whether it may be unloaded to make room."""
        async with self._pool.connection() as connection:
            await connection.execute("UPDATE inference.adapters SET pinned = %s WHERE name = %s", [pinned, name])

    async def ready(self, name: str, probe: ProbeResult, load_ms: float) -> Record:
        """Every replica serves it and its probe passed."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                """UPDATE inference.adapters SET state = 'ready', reason = '', probe = %s, load_ms = %s,
                updated_at = now() WHERE name = %s RETURNING *""",
                [Jsonb(probe.model_dump()), load_ms, name],
            )
            row = await cursor.fetchone()
        assert row is not None, f"{name} began and cannot be gone"
        return _record(row)

    async def leave(self, name: str, state: AdapterState, reason: str) -> None:
        """No longer served."""
        async with self._pool.connection() as connection:
            await connection.execute(
                """UPDATE inference.adapters SET state = %s, reason = %s, folder = NULL, updated_at = now()
                WHERE name = %s""",
                [state, reason, name],
            )

    async def forget(self, name: str) -> None:
        """Hide it; the row stays, so that its name is never given to other weights."""
        async with self._pool.connection() as connection:
            await connection.execute(
                """UPDATE inference.adapters SET state = 'unloaded', reason = 'removed', folder = NULL, removed = true,
                pinned = false, updated_at = now() WHERE name = %s""",
                [name],
            )

    async def abandon_loading(self) -> None:
        """At start: publishes that the gateway's end cut off can be asked for again."""
        async with self._pool.connection() as connection:
            await connection.execute(
                """UPDATE inference.adapters SET state = 'unloaded', folder = NULL, updated_at = now(),
                reason = 'the gateway stopped while it was loading; put it again' WHERE state = 'loading'"""
            )


def _record(row: dict[str, object]) -> Record:
    fields = {name: row[name] for name in Adapter.model_fields}
    folder = row["folder"]
    return Record(
        adapter=Adapter.model_validate(fields),
        probe=Probe.model_validate(row["probe_request"]),
        config_digest=None if row["config_digest"] is None else str(row["config_digest"]),
        folder=None if folder is None else Path(str(folder)),
        removed=bool(row["removed"]),
    )
