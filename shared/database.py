"""Access to the control database: a pool, and migrations by yoyo (plain SQL in `shared/migrations`)."""

import contextlib
import sys
from pathlib import Path

import psycopg
import yoyo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from shared.settings import DatabaseSettings, load

MIGRATIONS = Path(__file__).parent / "migrations"

Pool = AsyncConnectionPool[psycopg.AsyncConnection[dict[str, object]]]


def open_pool(dsn: str, size: int = 8) -> Pool:
    """A pool of autocommit connections with dict rows; open it with `async with`. Waits up to 30 s for a connection."""
    return AsyncConnectionPool(
        dsn,
        min_size=1,
        max_size=size,
        timeout=30.0,
        open=False,
        kwargs={"autocommit": True, "row_factory": dict_row},
        check=AsyncConnectionPool.check_connection,
    )


async def check_database(pool: Pool) -> str:
    """Readiness check: `ok` when the database answers and every migration has run."""
    wanted = {path.stem for path in MIGRATIONS.glob("*.sql")}
    async with pool.connection(timeout=2.0) as connection:
        rows = await (await connection.execute("SELECT migration_id FROM _yoyo_migration")).fetchall()
    missing = wanted - {str(row["migration_id"]) for row in rows}
    return "ok" if not missing else f"migrations not applied: {sorted(missing)}; run `python -m shared.database`"


def migrate(dsn: str) -> list[str]:
    """Apply what is missing, one process at a time (yoyo's own lock). Returns the ids applied."""
    backend = yoyo.get_backend(dsn.replace("postgresql://", "postgresql+psycopg://", 1))
    migrations = yoyo.read_migrations(str(MIGRATIONS))
    with contextlib.closing(backend.connection), backend.lock():
        pending = backend.to_apply(migrations)
        backend.apply_migrations(pending)
    return [migration.id for migration in pending]


if __name__ == "__main__":
    applied = migrate(load(DatabaseSettings).db.get_secret_value())
    print(f"applied {applied}" if applied else "nothing to apply", file=sys.stderr)
