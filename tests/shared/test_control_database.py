import psycopg
import pytest

from shared.database import check_database, migrate, open_pool


def test_migrations_apply_once(control_db: str) -> None:
    assert migrate(control_db) == []


async def test_readiness_names_a_migration_that_is_missing(control_db: str) -> None:
    async with open_pool(control_db) as pool:
        assert await check_database(pool) == "ok"
        with psycopg.connect(control_db, autocommit=True) as connection:
            removed = connection.execute("DELETE FROM _yoyo_migration RETURNING migration_id").fetchone()
        assert removed is not None
        assert removed[0] in await check_database(pool)


def test_a_wrong_password_is_refused(control_cluster: str) -> None:
    head, _, tail = control_cluster.partition("@")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"{head}x@{tail}")
