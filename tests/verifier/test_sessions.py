"""The warm pool: nothing that one statement leaves in a session reaches the next. The parser is left out throughout."""

from collections.abc import Iterator

import psycopg
import pytest

from services.verifier.execution import Failure, Limits, Outcome, execute
from services.verifier.sandbox.local import LocalCluster, LocalDriver
from services.verifier.sandbox.protocol import Role
from services.verifier.sandbox.session import Sessions
from shared.domain import Bundle, DomainSettings
from tests.verifier.conftest import temporary_folder
from tests.verifier.store import MAIN, SCHEMA

LIMITS = Limits(rows=200, bytes=1_000_000)
BUNDLE = Bundle(DomainSettings(name="bookstore", statement_timeout_seconds=1), SCHEMA + "CREATE SEQUENCE s;", MAIN)

OPENED = """
GRANT EXECUTE ON FUNCTION pg_catalog.set_config(text, text, bool), pg_catalog.current_setting(text, bool),
  pg_catalog.pg_advisory_lock(bigint), pg_catalog.nextval(regclass), pg_catalog.lastval(),
  pg_catalog.pg_notify(text, text) TO candidate;
GRANT gold TO candidate;
GRANT ALL ON SEQUENCE s TO candidate;
GRANT TEMPORARY ON DATABASE seed_0 TO candidate;
"""
"""The grants taken down as far as it takes to plant something."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with temporary_folder() as folder:
        driver = LocalDriver(folder, 256 * 1024**2, None)
        yield driver.start(BUNDLE)
        driver.close()


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[psycopg.Connection]:
    with psycopg.connect(
        host=cluster.host, user=Role.ADMIN, dbname=cluster.database("main"), autocommit=True
    ) as opened:
        yield opened


@pytest.fixture
def sessions(cluster: LocalCluster, admin: psycopg.Connection) -> Iterator[Sessions]:
    admin.execute(OPENED)
    opened = Sessions(cluster, statement_timeout_seconds=1)
    yield opened
    opened.close()


def run(sessions: Sessions, sql: str) -> Outcome:
    return execute(sessions, Role.CANDIDATE, "main", sql, LIMITS)


def backend(sessions: Sessions) -> int:
    with sessions.session(Role.CANDIDATE, "main") as session:
        assert session.run("SELECT 1", 1, 1).reusable
        return session.connection.info.backend_pid


SET_BY_SELECT = [
    ("statement_timeout", "0", "1s"),
    ("search_path", "pg_catalog", "public"),
    ("TimeZone", "Asia/Tokyo", "UTC"),
    ("DateStyle", "German", "ISO, YMD"),
    ("extra_float_digits", "-15", "1"),
    ("work_mem", "1GB", "16MB"),
    ("enable_hashjoin", "off", "on"),
    ("plan_cache_mode", "force_generic_plan", "auto"),
    ("default_transaction_isolation", "serializable", "read committed"),
    ("default_transaction_read_only", "off", "on"),
    ("role", "gold", "none"),
]


@pytest.mark.parametrize("name, planted, pinned", SET_BY_SELECT)
def test_settings_return_to_the_pinned_ones_in_the_same_backend(
    sessions: Sessions, name: str, planted: str, pinned: str
) -> None:
    before = backend(sessions)
    assert run(sessions, f"SELECT set_config('{name}', '{planted}', false)").failure is None
    assert run(sessions, f"SELECT current_setting('{name}', true)").texts == [(pinned,)]
    assert run(sessions, "SELECT current_user::text, current_setting('transaction_read_only', true)").texts == [
        ("candidate", "on")
    ]
    assert backend(sessions) == before


def test_a_made_up_setting_loses_its_value(sessions: Sessions) -> None:
    assert run(sessions, "SELECT set_config('my.note', 'from the last one', false)").texts == [("from the last one",)]
    # Postgres forgets the value but not the name. Planting even that takes set_config, which is revoked.
    assert run(sessions, "SELECT current_setting('my.note', true)").texts == [("",)]


def test_advisory_locks_end_with_the_statement(sessions: Sessions, admin: psycopg.Connection) -> None:
    before = backend(sessions)
    assert run(sessions, "SELECT pg_advisory_lock(7)").failure is None
    assert admin.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
    assert run(sessions, "SELECT pg_advisory_lock(7), 1 / 0").failure is Failure.SQL_ERROR
    assert admin.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
    assert backend(sessions) == before


UTILITIES = [
    "SET search_path = x",
    "SET my.note = 'x'",
    "SET ROLE gold",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE",
    "PREPARE p AS SELECT 1",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "LISTEN channel",
    "BEGIN",
    "BEGIN READ WRITE",
    "COMMIT",
    "SHOW search_path",
    "EXPLAIN SELECT 1",
    "LOAD 'plpgsql'",
    "COPY author TO STDOUT",
    "CREATE TEMP TABLE leftover (a int)",
    "SELECT 1 AS a INTO TEMP leftover",
]


@pytest.mark.parametrize("sql", UTILITIES)
def test_what_is_no_query_costs_the_session_its_connection_or_does_nothing(sessions: Sessions, sql: str) -> None:
    before = backend(sessions)
    outcome = run(sessions, sql)
    assert outcome.failure in (None, Failure.SQL_ERROR)
    nothing_happened = outcome.failure is Failure.SQL_ERROR and "no rows" not in outcome.reason
    assert nothing_happened or backend(sessions) != before
    for probe in ("EXECUTE p", "FETCH c", "SELECT * FROM leftover", "SHOW my.note"):
        assert run(sessions, probe).failure is Failure.SQL_ERROR, probe
    assert run(sessions, "SELECT name FROM author WHERE id = 1").texts == [("Ada",)]


def test_sequences_cannot_be_drawn_on_and_are_not_remembered(sessions: Sessions) -> None:
    for sql in ("SELECT nextval('s')", "SELECT set_config('transaction_read_only', 'off', false), nextval('s')"):
        assert "read-only" in run(sessions, sql).reason or "read-write" in run(sessions, sql).reason
    assert "not yet defined" in run(sessions, "SELECT lastval()").reason


@pytest.mark.parametrize(
    "sql", ["SELECT setseed(0.5)", "SELECT random()", "SELECT lo_create(0)", "SELECT pg_notify('a', 'b')"]
)
def test_what_a_reset_does_not_reach_cannot_be_planted(admin: psycopg.Connection, sessions: Sessions, sql: str) -> None:
    admin.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_notify(text, text) FROM candidate")
    assert "permission denied" in run(sessions, sql).reason


def test_failures_and_results_over_the_cap_keep_the_connection(sessions: Sessions) -> None:
    before = backend(sessions)
    assert run(sessions, "SELECT no_such").failure is Failure.SQL_ERROR
    assert run(sessions, "SELECT g FROM generate_series(1, 1000000) g").reason == "more than 200 rows"
    assert run(sessions, "SELECT repeat('x', 2000000)").reason == "more than 1000000 bytes"
    slow = run(sessions, "SELECT count(*) FROM " + ", ".join(f"book b{i}" for i in range(30)))
    assert slow.failure is Failure.TIMEOUT
    assert backend(sessions) == before
    assert run(sessions, "SELECT name FROM author ORDER BY id").texts == [("Ada",), ("Bo",), ("Cy",)]


def test_a_connection_used_directly_is_not_used_again(sessions: Sessions) -> None:
    with sessions.session(Role.CANDIDATE, "main") as session:
        before = session.connection.info.backend_pid
        session.connection.execute("SET search_path = x")
        session.connection.execute("PREPARE p AS SELECT 1")
    assert backend(sessions) != before
    assert run(sessions, "SELECT current_setting('search_path', true)").texts == [("public",)]
    assert run(sessions, "EXECUTE p").failure is Failure.SQL_ERROR
