"""Fixtures that several parts use: a control database, a tokens file."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from cli.stack.home import TOKEN_SCOPES, StackHome, free_ports
from shared.auth import Scope, write_tokens
from shared.database import migrate
from tests.prometheus import PROMETHEUS, scraping
from tests.stack import StackHandle

ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"

_unexpected_skips: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In CI, note a skip that the committed list does not allow."""
    allowed = [line.split()[0] for line in ALLOWED_SKIPS.read_text().splitlines() if line and not line.startswith("#")]
    if report.skipped and os.environ.get("CI") and not report.nodeid.startswith(tuple(allowed)):
        _unexpected_skips.append(f"{report.nodeid}: {report.longrepr}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a CI run that skipped anything unlisted: a test that silently stops running is a defect."""
    if _unexpected_skips:
        print("\nskipped, and not in tests/allowed_skips.txt:", *_unexpected_skips, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


STACK = "stack"


def part(path: Path) -> str:
    """What a test file shares costly fixtures with: its folder, or all that use the whole stack, by their names."""
    on_stack = path.parent.name == "climb" or path.stem.endswith("_on_stack")
    return STACK if on_stack else "/".join(path.parts[path.parts.index("tests") : -1])


class _ByPart(LoadScopeScheduling):
    """A part's tests share a worker process, and so its fixtures: the stack's takes minutes and 4 GB."""

    def _split_scope(self, nodeid: str) -> str:
        return part(Path(nodeid.split("::")[0]))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """How `-n` spreads tests."""
    config.option.loadscopereorder = False
    return _ByPart(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest parts first: the stack's, then by the number of their tests."""
    sizes = Counter(part(item.path) for item in items)
    items.sort(key=lambda item: (part(item.path) != STACK, -sizes[part(item.path)], part(item.path)))


USER_SCOPES = [Scope.SAMPLE, Scope.TRAIN, Scope.AUTHOR]
"""A person who may do everything but see golds."""


@pytest.fixture(scope="session")
def control_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """DSN of the `postgres` database of an embedded control cluster that lives for the session."""
    with started_control_cluster(tmp_path_factory.mktemp("control")) as dsn:
        yield dsn


@contextlib.contextmanager
def started_control_cluster(folder: Path) -> Iterator[str]:
    """DSN of the `postgres` database of an embedded control cluster in this folder."""
    port, password = free_ports(1)[0], secrets.token_hex(16)
    dsn = f"postgresql://sqlclimb:{password}@127.0.0.1:{port}/postgres"
    server = start_control_server(folder, dsn)
    try:
        yield dsn
    finally:
        stop_control_server(server)


def start_control_server(folder: Path, dsn: str) -> "subprocess.Popen[bytes]":
    """The server of an embedded control cluster in this folder (made when absent), once it takes connections."""
    environment = {"SQLCLIMB_DB": dsn, "SQLCLIMB_CONTROL_DATA": str(folder / "data"), "PATH": "/usr/bin:/bin"}
    with (folder / "log").open("a") as log:
        argv = [sys.executable, "-m", "shared.control_database"]
        server = subprocess.Popen(argv, env=environment, stderr=log)
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn):
            return server
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            pytest.fail(f"the control database did not start in 60 s: {(folder / 'log').read_text()}")
        time.sleep(0.1)


def stop_control_server(server: "subprocess.Popen[bytes]") -> None:
    """Fast: it ends its sessions."""
    server.send_signal(signal.SIGINT)
    server.wait(timeout=60)


@pytest.fixture(scope="session")
def migrated(control_cluster: str) -> str:
    """Name of a migrated database that nobody connects to: a copy takes a tenth of what the migrations take."""
    with psycopg.connect(control_cluster, autocommit=True) as connection:
        connection.execute("CREATE DATABASE migrated")
    migrate(_database(control_cluster, "migrated"))
    return "migrated"


@pytest.fixture
def control_db(control_cluster: str, migrated: str) -> str:
    """DSN of a fresh, migrated control database."""
    name = f"test_{secrets.token_hex(4)}"
    with psycopg.connect(control_cluster, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE {migrated}')
    return _database(control_cluster, name)


def _database(control_cluster: str, name: str) -> str:
    return control_cluster.rsplit("/", 1)[0] + f"/{name}"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackHandle]:
    """The whole local stack as `demo --smoke --keep` leaves it: tasks, a small policy, a run of two steps.

    One for the session (a start costs a minute and 4 GB). A test that breaks a service waits for it to be back.
    """
    handle = StackHandle(tmp_path_factory.mktemp("stack"))
    with contextlib.ExitStack() as scrape:
        if PROMETHEUS is not None:
            folder = tmp_path_factory.mktemp("prometheus")
            handle.prometheus = scrape.enter_context(scraping(StackHome(handle.home), folder))
        try:
            handle.start()
            yield handle
        finally:
            handle.stop()


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A tokens file with the names of a real stack."""
    path = tmp_path / "tokens.json"
    write_tokens(path, TOKEN_SCOPES | {"user": USER_SCOPES})
    return path
