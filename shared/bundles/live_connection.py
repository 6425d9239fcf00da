"""A connection to a team's own database: read-only, one snapshot, statements with a time limit, a quiet password.

The password may come in the connection string, by PGPASSWORD, a password file or a service file. It goes to libpq and
to `pg_dump`'s environment; never to an argument list, a log, a bundle or an error.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict

from shared.domain import BundleError
from shared.embedded_postgres import PostgresUnavailable, program

STATEMENT_SECONDS = 30
LOCK_SECONDS = 5
DUMP_SECONDS = 300
_CONNECT_SECONDS = 15
_SESSION = {
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "search_path": "",
    # rows are looked up by keys: a plan that reads a huge table to find a few of them is never right here
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": "0",
}


@dataclass(frozen=True)
class Live:
    """An open snapshot."""

    connection: psycopg.Connection
    environment: dict[str, str] = field(repr=False)
    """libpq's variables that lead a child to the same database."""
    secrets: tuple[str, ...] = field(repr=False)
    snapshot: str | None
    """For other sessions to see the same; None where the server exports none."""

    def message(self, error: Exception) -> str:
        """What an error says, without what must not be shown."""
        return _quiet(str(error).strip(), self.secrets)


def given_dsn(value: str) -> str:
    """The connection string that an option's value stands for: itself, or `env:NAME`'s value. Raises BundleError."""
    if not value.startswith("env:"):
        return value
    name = value.removeprefix("env:")
    if not re.fullmatch(r"\w+", name):
        raise BundleError("--from-dsn env: takes a variable's name, and no connection string (it is not shown here)")
    found = os.environ.get(name)
    if not found:
        raise BundleError(f"--from-dsn {value}: the environment has no such variable: export it first")
    return found


@contextmanager
def open_snapshot(dsn: str, statement_seconds: float = STATEMENT_SECONDS) -> Iterator[Live]:
    """A REPEATABLE READ, READ ONLY transaction on the database. Raises BundleError, which never shows the DSN."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        raise BundleError(
            "--from-dsn is no connection string: postgresql://user@host/database, `host=… dbname=…`, `service=…`, or "
            "env:NAME (it is not shown here: it may hold a password)"
        ) from None
    if dsn.startswith(("postgres://", "postgresql://")) and "@" in f"{given.get('host')}{given.get('dbname')}":
        raise BundleError(
            "--from-dsn: its host or database holds an `@`, as when a password is not escaped: write `@`, `:` and `/` "
            "in a password as %40, %3A and %2F, or give `host=… dbname=…` (it is not shown here)"
        )
    passwords = [given.get("password"), given.get("sslpassword"), os.environ.get("PGPASSWORD")]
    secrets = tuple(str(password) for password in passwords if password)
    try:
        connection = psycopg.connect(dsn, connect_timeout=_CONNECT_SECONDS, autocommit=False, prepare_threshold=None)
    except psycopg.Error as error:
        raise BundleError(f"--from-dsn: {_quiet(str(error).strip(), secrets)}") from None
    with connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        secrets = tuple({*secrets, connection.info.password} - {""})
        settings = _SESSION | {"statement_timeout": f"{int(statement_seconds * 1000)}ms"}
        try:
            for name, value in settings.items():
                connection.execute(sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), sql.Literal(value)))
            live = Live(connection, _environment(dsn), secrets, _exported(connection))
        except psycopg.Error as error:
            raise BundleError(f"--from-dsn: {_quiet(str(error).strip(), secrets)}") from None
        yield live
        connection.rollback()


def dump_schema(live: Live, section: str, schemas: Sequence[str], left_out: Sequence[str]) -> str:
    """A section of `pg_dump --schema-only` under the snapshot: `pre-data` or `post-data`. Raises BundleError.

    `schemas`: only these, all where empty; `left_out`: tables that are not dumped, as pg_dump patterns.
    """
    argv = [
        *(str(program("pg_dump")), "--schema-only", f"--section={section}", "--no-owner", "--no-privileges"),
        *("--no-publications", "--no-subscriptions", "--no-security-labels", "--no-tablespaces"),
        *("--no-table-access-method", "--encoding=UTF8", "--no-password", f"--lock-wait-timeout={LOCK_SECONDS}s"),
        *([f"--snapshot={live.snapshot}"] if live.snapshot else []),
        *(f"--schema={_pattern(name)}" for name in schemas),
        *(f"--exclude-table-and-children={name}" for name in left_out),
    ]
    try:
        done = subprocess.run(
            argv, env=_child_environment(live), capture_output=True, timeout=DUMP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise BundleError(f"pg_dump took longer than {DUMP_SECONDS} s for the schema: narrow it by --schema") from None
    except (OSError, PostgresUnavailable) as error:
        raise BundleError(f"--from-dsn needs pg_dump, which comes with embedded-postgres: {error}") from error
    if done.returncode != 0:
        said = _quiet(done.stderr.decode(errors="replace").strip(), live.secrets)
        raise BundleError(f"pg_dump cannot read the schema: {said[-600:]}")
    return done.stdout.decode()


def table_pattern(schema: str, name: str) -> str:
    """A table as pg_dump's options take it."""
    return f"{_pattern(schema)}.{_pattern(name)}"


def _pattern(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _exported(connection: psycopg.Connection) -> str | None:
    """None on a standby, which exports none."""
    if _one(connection, "SELECT pg_catalog.pg_is_in_recovery()"):
        return None
    return str(_one(connection, "SELECT pg_catalog.pg_export_snapshot()"))


def _one(connection: psycopg.Connection, query: str) -> object:
    row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


def _environment(dsn: str) -> dict[str, str]:
    """The string's parameters under the names of libpq's environment variables."""
    options = pq.Conninfo.parse(dsn.encode())
    return {o.envvar.decode(): o.val.decode() for o in options if o.val is not None and o.envvar}


def _child_environment(live: Live) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TZ")}
    kept |= {name: value for name, value in os.environ.items() if name.startswith("PG")}
    return kept | live.environment


def _quiet(text: str, secrets: Sequence[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):  # one may be a part of another
        text = text.replace(secret, "***")
    return text
