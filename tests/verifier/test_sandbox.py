"""The sandbox by itself, with the parser left out: grants, session settings, limits, deaths and left-overs."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from services.verifier.execution import Failure, Limits, Outcome, execute
from services.verifier.sandbox.local import LocalCluster, LocalDriver
from services.verifier.sandbox.protocol import BundleFaulty, Role, SandboxFailed
from services.verifier.sandbox.session import Sessions
from services.verifier.sandboxes import RunningSandbox, Sandboxes
from shared.contracts.verifier import Status
from shared.domain import Bundle, DomainSettings
from shared.errors import NotFound, TooMany
from tests.verifier.conftest import start_verifier, temporary_folder
from tests.verifier.store import FEWER, GOLD, MAIN, SCHEMA, sandbox_request, verify_sql

MEMORY_BYTES = 256 * 1024**2
LIMITS = Limits(rows=200, bytes=1_000_000)
BUNDLE = Bundle(DomainSettings(name="bookstore", statement_timeout_seconds=1), SCHEMA, MAIN, variants={"fewer": FEWER})
SLOW = "SELECT count(*) FROM " + ", ".join(f"book b{i}" for i in range(30))


@pytest.fixture(scope="module")
def driver() -> Iterator[LocalDriver]:
    with temporary_folder() as folder:
        opened = LocalDriver(folder, MEMORY_BYTES, None)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def cluster(driver: LocalDriver) -> Iterator[LocalCluster]:
    started = driver.start(BUNDLE)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def sessions(cluster: LocalCluster) -> Iterator[Sessions]:
    opened = Sessions(cluster, statement_timeout_seconds=1)
    yield opened
    opened.close()


def run(sessions: Sessions, sql: str, seed: str = "main", role: Role = Role.CANDIDATE) -> Outcome:
    return execute(sessions, role, seed, sql, LIMITS)


def answers_as_ever(sessions: Sessions) -> bool:
    outcome = run(sessions, "SELECT name FROM author ORDER BY id")
    return outcome.failure is None and outcome.rows == [("ada",), ("bo",), ("cy",)]


def test_each_seed_is_a_database_of_its_own(sessions: Sessions) -> None:
    counts = [run(sessions, "SELECT count(*)::text FROM book", seed).rows for seed in ("main", "fewer")]
    assert counts == [[("3",)], [("2",)]]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO author VALUES (9, 'x')",
        "UPDATE author SET name = 'x'",
        "DROP TABLE author",
        "CREATE TEMP TABLE x (a int)",
        "CREATE SCHEMA x",
        "SELECT set_config('statement_timeout', '0', false)",
        "SELECT * FROM pg_stat_activity",
        "SELECT * FROM pg_catalog.pg_class",
        "SELECT * FROM information_schema.tables",
        "SELECT pg_terminate_backend(1)",
        "SELECT pg_ls_dir('.')",
        "SELECT nextval('x')",
        "SELECT * FROM query_to_xml('select 1', true, false, '')",
        "SELECT gen_random_uuid()",
        "SELECT lo_create(0)",
        "SET ROLE gold",
        "SET SESSION AUTHORIZATION postgres",
        "DO $$ BEGIN END $$",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "SELECT 1; SELECT 2",
        "COPY author TO '/tmp/x'",
        "VACUUM",
    ],
)
def test_without_the_parser_rights_and_protocol_stop_it(sessions: Sessions, sql: str) -> None:
    assert run(sessions, sql).failure is Failure.SQL_ERROR
    assert answers_as_ever(sessions)


def test_without_the_parser_nothing_is_left_in_a_session(sessions: Sessions) -> None:
    for sql in ("SET statement_timeout = 0", "SET search_path = x", "COMMIT", "PREPARE p AS SELECT 1", "LISTEN x",
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"):  # fmt: skip
        run(sessions, sql)
    with sessions.session(Role.CANDIDATE, "main") as session:
        connection = session.connection
        settings = {
            name: connection.execute(f"SHOW {name}").fetchone()
            for name in ("statement_timeout", "search_path", "TimeZone", "default_transaction_read_only")
        }
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            connection.execute("EXECUTE p")
    expected = {"statement_timeout": "1s", "search_path": "public", "TimeZone": "UTC"}
    assert settings == {name: (value,) for name, value in expected.items()} | {"default_transaction_read_only": ("on",)}


@pytest.mark.parametrize(
    "sql, failure",
    [
        (SLOW, Failure.TIMEOUT),
        ("SELECT g FROM generate_series(1, 1000) g", Failure.OVERSIZED),
        ("SELECT repeat('x', 2000000)", Failure.OVERSIZED),
        ("SELECT repeat('x', 500000000)", Failure.SQL_ERROR),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT n FROM r", Failure.OVERSIZED),
        ("SELECT array_fill(1, ARRAY[200000000])", Failure.SQL_ERROR),
    ],
)
def test_exhaustion_ends_at_a_limit(sessions: Sessions, sql: str, failure: Failure) -> None:
    started = time.monotonic()
    assert run(sessions, sql).failure is failure
    assert time.monotonic() - started < 5
    assert answers_as_ever(sessions)


def test_a_bundle_that_does_not_load_leaves_no_cluster(driver: LocalDriver, tmp_path: Path) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.raises(BundleFaulty, match="seed `main` does not load"):
        driver.start(Bundle(DomainSettings(name="bad"), "CREATE TABLE t (a nonsense)", ""))
    after = psutil.Process().children(recursive=True)
    assert [process for process in after if process.pid not in before and process.is_running()] == []


def postmaster_of(cluster: LocalCluster) -> psutil.Process:
    """The server process, which under bubblewrap is the child of the process we started."""
    started = psutil.Process(int((Path(cluster.host).parent / "pid").read_text()))
    return started if started.name() == "postgres" else started.children()[0]


def newest_backend_of(cluster: LocalCluster) -> psutil.Process:
    """The backend of the statement in flight: it started last."""
    return max(postmaster_of(cluster).children(), key=lambda process: process.create_time())


@pytest.mark.parametrize("victim", ["cluster", "backend"])
def test_a_killed_postgres_is_nobodys_wrong_answer_and_is_replaced(driver: LocalDriver, victim: str) -> None:
    sandbox = RunningSandbox("killed", "tests", BUNDLE, driver)
    sandbox.start()
    assert sandbox._sessions is not None
    cluster = sandbox._sessions.cluster
    assert isinstance(cluster, LocalCluster)
    outcomes: list[Outcome] = []
    running = threading.Thread(
        target=lambda: outcomes.append(sandbox.run(Role.CANDIDATE, "main", SLOW, LIMITS)),
    )
    running.start()
    deadline = time.monotonic() + 5
    while not sandbox._sessions._running and time.monotonic() < deadline:
        time.sleep(0.01)
    if victim == "cluster":
        postmaster_of(cluster).kill()
    else:
        newest_backend_of(cluster).kill()
    running.join(10)
    assert outcomes[0].failure in (Failure.INFRASTRUCTURE, Failure.TIMEOUT)
    started = time.monotonic()
    after = sandbox.run(Role.CANDIDATE, "main", "SELECT name FROM author WHERE id = 1", LIMITS)
    assert (after.failure, after.rows) == (None, [("ada",)])
    assert time.monotonic() - started < 3
    sandbox.close()


def test_a_backend_that_ignores_its_timeout_is_ended_by_the_watchdog(driver: LocalDriver) -> None:
    sandbox = RunningSandbox("stuck", "tests", BUNDLE, driver)
    sandbox.start()
    sessions = sandbox._sessions
    assert sessions is not None and isinstance(sessions.cluster, LocalCluster)
    outcomes: list[Outcome] = []
    running = threading.Thread(target=lambda: outcomes.append(sandbox.run(Role.CANDIDATE, "main", SLOW, LIMITS)))
    running.start()
    deadline = time.monotonic() + 5
    while not sessions._running and time.monotonic() < deadline:
        time.sleep(0.01)
    newest_backend_of(sessions.cluster).send_signal(signal.SIGSTOP)
    while running.is_alive() and time.monotonic() < deadline + 10:
        sandbox.tend()
        running.join(0.1)
    assert outcomes[0].failure is Failure.TIMEOUT
    assert sandbox.run(Role.CANDIDATE, "main", "SELECT 1 FROM author", LIMITS).failure is None
    sandbox.close()


def test_removed_sandboxes_leave_no_process_file_or_descriptor(driver: LocalDriver) -> None:
    driver.start(BUNDLE).stop()
    descriptors = len(os.listdir("/proc/self/fd"))
    folders: list[Path] = []
    for _ in range(3):
        cluster = driver.start(BUNDLE)
        opened = Sessions(cluster, 1)
        assert run(opened, "SELECT 1").failure is None
        opened.close()
        folders.append(Path(cluster.host).parent)
        cluster.stop()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert not any(folder.exists() for folder in folders)
    commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands for folder in folders if str(folder) in command]


async def test_without_bubblewrap_an_unprivileged_process_does_it(open_folder: Path) -> None:
    running = start_verifier(open_folder, isolation="process")
    try:
        async with running.client() as client:
            assert (await client.readiness()).versions["isolation"] == "process"
            made = await client.create_sandbox(sandbox_request("plain"))
            assert made.isolation == "process"
            answer = await client.verify("plain", verify_sql(GOLD, GOLD, "SELECT pg_sleep(1)"))
            assert [verdict.status for verdict in answer.verdicts] == [Status.MATCH, Status.REFUSED]
    finally:
        running.stop()


def test_an_unused_sandbox_is_removed_and_a_used_one_stays(driver: LocalDriver) -> None:
    sandboxes = Sandboxes(driver, limit=2, ttl_seconds=60)
    for name in ("unused", "used"):
        sandboxes.create(name, "tests", BUNDLE)
        sandboxes.get(name).used_at -= 61
    with pytest.raises(TooMany, match="2 sandboxes are alive"):
        sandboxes.create("third", "tests", BUNDLE)
    assert sandboxes.get("used").run(Role.CANDIDATE, "main", "SELECT 1", LIMITS).failure is None
    sandboxes.get("unused").used_at -= 61
    sandboxes.tend()
    with pytest.raises(NotFound, match="create it again"):
        sandboxes.get("unused")
    sandboxes.close()
    with pytest.raises(NotFound):
        sandboxes.get("used")


def test_a_folder_serves_one_verifier(driver: LocalDriver) -> None:
    folder = driver._clusters_folder.parent
    with pytest.raises(SandboxFailed, match="in use by another verifier"):
        LocalDriver(folder, MEMORY_BYTES, None)
