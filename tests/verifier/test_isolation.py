"""Each isolation by itself: what it shuts out, what it caps, what is left when its processes are killed."""

import contextlib
import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from services.verifier.execution import Failure, Limits, Outcome
from services.verifier.sandbox.isolation import Isolation, choose_isolation
from services.verifier.sandbox.leftovers import end_processes
from services.verifier.sandbox.local import LocalCluster, LocalDriver
from services.verifier.sandbox.protocol import Role
from services.verifier.sandboxes import RunningSandbox
from shared.domain import Bundle, DomainSettings
from shared.embedded_postgres import PostgresUnavailable
from tests.verifier.conftest import temporary_folder
from tests.verifier.isolations import ISOLATIONS, MEMORY_BYTES, isolation_named, needs_bubblewrap
from tests.verifier.store import MAIN, SCHEMA

Answer = TypeVar("Answer")

LIMITS = Limits(rows=200, bytes=1_000_000)
BUNDLE = Bundle(DomainSettings(name="bookstore", statement_timeout_seconds=1.5), SCHEMA, MAIN)
ENDLESS = "SELECT count(*) FROM " + ", ".join(f"book b{i}" for i in range(30))
HOARDING = f"WITH hoard AS MATERIALIZED (SELECT array_agg(g) FROM generate_series(1, 6000000) g) {ENDLESS}, hoard"


TOTAL_BYTES = 40 * 1024**2
"""Far below what a session may take, so that one hoarding statement is too much."""


@pytest.fixture(scope="module", params=ISOLATIONS)
def driver(request: pytest.FixtureRequest) -> Iterator[LocalDriver]:
    with temporary_folder() as folder:
        opened = LocalDriver(folder, MEMORY_BYTES, request.param, TOTAL_BYTES)
        assert (opened.isolation, opened.obstacle()) == (request.param, "")
        yield opened
        opened.close()
        assert working_below(folder) == []


def working_below(folder: Path) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cwd"]) if (p.info["cwd"] or "").startswith(str(folder))]


ALL_PROCESSES = range(2**22)


def segments_of(servers: Collection[int]) -> set[str]:
    """Ids of this machine's System V shared memory that processes of these ids made.

    Process ids come again: take away what there was before those processes.
    """
    lines = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return {words[1] for words in lines if int(words[4]) in servers}


def output_of(isolation: Isolation, folder: Path, script: str) -> str:
    argv = isolation.command(["/bin/sh", "-c", script], folder)
    return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False).stdout


@needs_bubblewrap
def test_under_bubblewrap_nothing_but_the_folder_is_writable_or_visible(open_folder: Path) -> None:
    isolation = isolation_named("bubblewrap", open_folder)
    inside = open_folder / "inside"
    inside.mkdir()
    places = "/ /tmp /dev /dev/shm /usr /etc /sandbox"
    written = output_of(isolation, inside, f"for d in {places}; do touch $d/x 2>/dev/null && echo $d; done")
    assert written.split() == ["/sandbox"]
    assert output_of(isolation, inside, "echo /proc/[0-9]*").split() == ["/proc/1"]
    assert [
        line.split(":")[0].strip() for line in output_of(isolation, inside, "tail -n +3 /proc/net/dev").splitlines()
    ] == ["lo"]
    assert output_of(isolation, inside, f"ls {open_folder} /root /home 2>/dev/null") == ""
    assert sorted(output_of(isolation, inside, "env").split()) == ["LC_ALL=C", "PATH=/usr/bin:/bin", "PWD=/sandbox"]


def test_server_and_backends_are_capped_filtered_and_first_to_go_when_memory_is_short(driver: LocalDriver) -> None:
    sandbox = RunningSandbox("capped", "tests", BUNDLE, driver)
    try:
        assert sandbox.run(Role.CANDIDATE, "main", "SELECT 1", LIMITS).failure is None
        servers = servers_among(processes_of(sandbox))
        assert len(servers) > 3
        for server in servers:
            status = Path(f"/proc/{server.pid}/status").read_text()
            assert "Seccomp:\t2\n" in status and "NoNewPrivs:\t1\n" in status
            limits = Path(f"/proc/{server.pid}/limits").read_text()
            assert re.search(rf"Max address space +{MEMORY_BYTES} +{MEMORY_BYTES} ", limits)
            assert re.search(r"Max core file size +0 +0 ", limits)
            assert Path(f"/proc/{server.pid}/oom_score_adj").read_text() == "1000\n"
            assert "CapEff:\t0000000000000000\n" in status
    finally:
        sandbox.close()


def cluster_of(sandbox: RunningSandbox) -> LocalCluster:
    assert sandbox._sessions is not None
    cluster = sandbox._sessions.cluster
    assert isinstance(cluster, LocalCluster)
    return cluster


def servers_among(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Postgres and its children, without what has just ended."""
    return [process for process in processes if _said(process.name) == "postgres"]


def backends(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that serve a reading role."""
    roles = {"candidate", "gold"}
    return [process for process in processes if roles & set(" ".join(_said(process.cmdline) or []).split())]


def _said(question: Callable[[], Answer]) -> Answer | None:
    """A process's answer; None when it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return question()
    return None


def processes_of(sandbox: RunningSandbox) -> list[psutil.Process]:
    return cluster_of(sandbox)._server.processes()


def until(reached: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_sandbox_over_its_total_is_stopped_and_back_within_a_second(
    driver: LocalDriver, caplog: pytest.LogCaptureFixture
) -> None:
    patient = replace(BUNDLE, settings=DomainSettings(name="bookstore", statement_timeout_seconds=20))
    bomb, other = (RunningSandbox(called, "tests", patient, driver) for called in ("bomb", "other"))
    outcomes: list[Outcome] = []
    statement = threading.Thread(target=lambda: outcomes.append(bomb.run(Role.CANDIDATE, "main", HOARDING, LIMITS)))
    try:
        bomb.start()
        other.start()
        first = cluster_of(bomb)
        statement.start()
        with caplog.at_level(logging.WARNING):
            while statement.is_alive():
                bomb.tend()
                other.tend()
                statement.join(0.05)
        assert outcomes[0].failure is Failure.SQL_ERROR  # stopped each time, also where it ran alone
        assert "sandbox bomb is stopped for its use of" in caplog.text and "sandbox other" not in caplog.text
        started = time.monotonic()
        assert bomb.run(Role.CANDIDATE, "main", "SELECT name FROM author WHERE id = 1", LIMITS).rows == [("ada",)]
        assert time.monotonic() - started < 1
        assert not Path(first.host).exists() and first is not cluster_of(bomb)
    finally:
        bomb.close()
        other.close()


@pytest.mark.parametrize("victim", ["server", "backend"])
def test_a_killed_server_with_a_busy_backend_leaves_nothing_once_stopped(driver: LocalDriver, victim: str) -> None:
    sandbox = RunningSandbox("killed", "tests", BUNDLE, driver)
    earlier = segments_of(ALL_PROCESSES)
    sandbox.start()
    cluster = cluster_of(sandbox)
    servers = servers_among(processes_of(sandbox))
    assert bool(segments_of({servers[0].pid}) - earlier) == (driver.isolation == "process")
    statement = threading.Thread(target=lambda: sandbox.run(Role.CANDIDATE, "main", ENDLESS, LIMITS))
    try:
        statement.start()
        until(lambda: backends(processes_of(sandbox)) != [])
        (servers[0] if victim == "server" else backends(processes_of(sandbox))[0]).kill()
        until(lambda: sandbox.tend() is None and not Path(cluster.host).exists())
        assert not working_below(Path(cluster.host).parent)
    finally:
        sandbox.close()
        statement.join()
    assert working_below(Path(cluster.host).parent) == []
    assert segments_of({server.pid for server in servers}) <= earlier


def test_a_process_that_left_its_parent_is_found_by_its_folder(open_folder: Path) -> None:
    orphaned = subprocess.run(
        ["/bin/sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"],
        cwd=open_folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    orphan = psutil.Process(int(orphaned.stdout))
    end_processes(open_folder / "another")
    assert orphan.status() != psutil.STATUS_ZOMBIE
    end_processes(open_folder)
    assert not psutil.pid_exists(orphan.pid) or orphan.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    "works, wanted, chosen",
    [
        ({"bubblewrap", "process"}, None, "bubblewrap"),
        ({"bubblewrap without seccomp", "process"}, None, "bubblewrap without seccomp"),
        ({"process", "process without seccomp"}, None, "process"),
        ({"process without seccomp"}, None, "process without seccomp"),
        ({"bubblewrap", "process"}, "process", "process"),
    ],
)
def test_the_strongest_isolation_that_works_is_chosen_and_weaker_ones_are_a_warning(
    works: set[str], wanted: str | None, chosen: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def trial(isolation: Isolation) -> str:
        return "" if isolation.name in works else "not permitted"

    with caplog.at_level(logging.INFO):
        assert choose_isolation(tmp_path, MEMORY_BYTES, wanted, trial).name == chosen
    assert f"`{chosen}`" in caplog.text
    assert (caplog.records[-1].levelno == logging.WARNING) == (chosen != "bubblewrap")


def test_an_isolation_that_is_asked_for_and_does_not_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        PostgresUnavailable, match=r"`bubblewrap` does not work here: not permitted|bwrap is not installed"
    ):
        choose_isolation(tmp_path, MEMORY_BYTES, "bubblewrap", lambda isolation: "not permitted")
