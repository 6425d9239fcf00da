"""A throw-away cluster on which golds and mutants run: the bundle's seeds, and scratch databases. Blocking I/O.

A scratch database holds one candidate seed after the other: replacing rows costs a tenth of a new database, and memory
for one. Rows go in under the schema's own constraints, as the same role that loads a bundle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import psycopg
from psycopg import sql

from services.verifier.execution import Failure, Limits, Outcome, execute
from services.verifier.gold_plan import GoldPlan
from services.verifier.profiles.standard import STANDARD
from services.verifier.sandbox.protocol import MAIN_SEED, BundleFaulty, Role, SandboxDriver
from services.verifier.sandbox.session import PINNED, Sessions, login_options
from services.verifier.suites.catalog import Connection, read_rows, read_tables, table_identifier
from services.verifier.suites.generation import Draft
from services.verifier.suites.tables import Contents, Row, Table
from services.verifier.verdicts import GoldResult, gold_result, judge
from shared.contracts.verifier import Status
from shared.domain import Bundle

LOAD_SECONDS = 60
"""A seed that loads longer is given up."""

KILLED = frozenset({Status.MISMATCH, Status.SQL_ERROR, Status.TIMEOUT, Status.REFUSED})


class WorkbenchFailed(Exception):
    """Its Postgres went away."""


class Workbench:
    """Open it as a context manager. Thread-safe, but for a scratch database, which is one thread's."""

    def __init__(self, driver: SandboxDriver, bundle: Bundle, scratches: int, limits: Limits) -> None:
        """`scratches`: how many scratch databases."""
        self.seeds = [MAIN_SEED, *bundle.variants]
        self.scratches = [f"~scratch-{number}" for number in range(scratches)]
        self._bundle = replace(bundle, variants={**bundle.variants, **dict.fromkeys(self.scratches, "")})
        self._driver = driver
        self._limits = limits

    def __enter__(self) -> "Workbench":
        """Raises BundleFaulty (also for a schema that brings rows, which no seed could replace) or SandboxFailed."""
        self._cluster = self._driver.start(self._bundle)
        self._sessions = Sessions(self._cluster, self._bundle.settings.statement_timeout_seconds)
        try:
            self._refuse_rows_in_schema()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._sessions.close()
        self._cluster.stop()
        self._driver.forget(self._bundle)

    def tend(self) -> None:
        """End statements that outlived their timeout; call it every second or so."""
        self._sessions.terminate_overdue()

    def _refuse_rows_in_schema(self) -> None:
        with self._connect("owner", self.scratches[0]) as connection:
            filled = [name for name, rows in read_rows(connection, self.read_tables()).items() if rows]
        if filled:
            raise BundleFaulty(
                f"schema.sql inserts rows ({', '.join(filled)}), which every seed would have: move them to seed.sql"
            )

    def _connect(self, user: str, seed: str) -> Connection:
        options = {**PINNED, "default_transaction_read_only": "off", "statement_timeout": str(LOAD_SECONDS * 1000)}
        return psycopg.connect(
            host=self._cluster.host,
            password=self._cluster.password,
            user=user,
            dbname=self._cluster.database(seed),
            options=login_options(options),
        )

    def read_tables(self, written: Mapping[str, Sequence[str]] | None = None) -> list[Table]:
        """The schema's tables; see `catalog.read_tables`."""
        with self._connect(Role.ADMIN, MAIN_SEED) as connection:
            return read_tables(connection, written)

    def read_rows(self, tables: Sequence[Table]) -> Contents:
        """The main seed's rows."""
        with self._connect("owner", MAIN_SEED) as connection:
            return read_rows(connection, tables)

    def load(self, scratch: str, tables: Sequence[Table], drafts: Mapping[str, Sequence[Draft]]) -> Contents | None:
        """Replace a scratch database's rows; the rows that Postgres took, or None when it takes no such seed."""
        try:
            with self._connect("owner", scratch) as connection:
                names = sql.SQL(", ").join(table_identifier(table.name) for table in tables)
                connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(names))
                for table in tables:
                    _insert(connection, table, drafts[table.name])
                return read_rows(connection, tables)
        except psycopg.Error as error:
            if not self._cluster.alive():
                raise WorkbenchFailed("its Postgres went away while rows were loaded") from error
            return None

    def gold(self, plan: GoldPlan, seed: str) -> GoldResult:
        """A gold's result. Raises WorkbenchFailed."""
        return gold_result(STANDARD, plan, self._run(Role.GOLD, seed, plan.sql), None)

    def value(self, expression: str) -> str | None:
        """What Postgres makes of an expression without columns, as text; None when it fails or is NULL."""
        outcome = self._run(Role.GOLD, MAIN_SEED, f"SELECT ({expression})::text")
        return outcome.texts[0][0] if outcome.failure is None and len(outcome.texts) == 1 else None

    def is_valid(self, seed: str, statement: str) -> bool:
        """Whether Postgres runs a statement on this seed. Raises WorkbenchFailed."""
        return self._run(Role.CANDIDATE, seed, statement).failure is not Failure.SQL_ERROR

    def verdict(self, seed: str, gold: GoldResult, statement: str) -> Status:
        """The verifier's own verdict of a statement on this seed alone, which must have a non-empty `gold`.

        Raises WorkbenchFailed.
        """
        outcome = self._run(Role.CANDIDATE, seed, statement)
        return judge(STANDARD, [seed], [{MAIN_SEED: gold, seed: gold}], lambda _: outcome).status

    def _run(self, role: Role, seed: str, statement: str) -> Outcome:
        outcome = execute(self._sessions, role, seed, statement, self._limits)
        if outcome.failure is not None and not self._cluster.alive():
            raise WorkbenchFailed(f"its Postgres went away: {outcome.reason}")
        return outcome


def _insert(connection: Connection, table: Table, drafts: Sequence[Draft]) -> None:
    """All rows at once if Postgres takes them; else one by one, each in the boldest form that it takes."""
    if not drafts or not table.columns:
        return
    try:
        with connection.transaction():
            connection.execute(_insert_sql(table, [draft[0] for draft in drafts]))
    except psycopg.Error:
        connection.execute(_one_by_one(connection, table, drafts))


def _insert_sql(table: Table, rows: Sequence[Row]) -> sql.Composed:
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    values = sql.SQL(", ").join(
        sql.SQL("({})").format(sql.SQL(", ").join(sql.Literal(value) for value in row)) for row in rows
    )
    statement = "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES {}"
    return sql.SQL(statement).format(table_identifier(table.name), columns, values)


def _one_by_one(connection: Connection, table: Table, drafts: Sequence[Draft]) -> bytes:
    """A PL/pgSQL block: a savepoint a row costs a hundredth of a round trip."""
    body = []
    for draft in drafts:
        attempt = "NULL;"
        for row in reversed(draft):
            insert = _insert_sql(table, [row]).as_string(connection)
            attempt = f"BEGIN {insert}; EXCEPTION WHEN OTHERS THEN {attempt} END;"
        body.append(attempt)
    text = "\n".join(body)
    tag = "$seed$"
    while tag in text:
        tag = f"{tag[:-1]}d$"
    return f"DO {tag} BEGIN\n{text}\nEND {tag}".encode()
