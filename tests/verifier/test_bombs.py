"""Statements that take all they can get, or end their server: what they cost, and whom."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from services.verifier.execution import Failure, Limits
from services.verifier.sandbox.local import TOTAL_BYTES, LocalDriver
from services.verifier.sandbox.protocol import Role
from services.verifier.sandboxes import RunningSandbox
from shared.domain import Bundle, DomainSettings
from tests.verifier.attacks.observing import BUNDLE, CONTROL, CONTROL_ROWS
from tests.verifier.conftest import temporary_folder
from tests.verifier.isolations import ISOLATIONS

pytestmark = pytest.mark.slow

MB = 1024**2
MEMORY_BYTES = 256 * MB
LIMITS = Limits(rows=200, bytes=1_000_000)
REBUILD_SECONDS = 5.0
"""Generous: 0.2 s on a quiet machine (the test prints what it took), and several times that on a busy one."""

GREEDY = "SELECT length(string_agg(repeat('x', 1000), '')) FROM generate_series(1, 900000), pg_typeof({}) a"
SPILLS = (
    "SELECT count(*) FROM (SELECT md5((g + {})::text) AS m FROM generate_series(1, 20000000) g ORDER BY m OFFSET 1) s"
)


PATIENT = replace(BUNDLE, settings=DomainSettings(name="patient", statement_timeout_seconds=20))
LITTLE_BYTES = 40 * MB
"""For a whole sandbox."""
STAYS = """
SELECT count(*) FROM (SELECT md5(g::text) AS m FROM generate_series(1, 900000) g ORDER BY m OFFSET 1) s,
                     generate_series(1, 1000) h
"""
"""Takes about 55 MB, within every limit but that one, until it is stopped."""


class Tended:
    """A sandbox whose watchdog runs, as in the verifier."""

    def __init__(self, driver: LocalDriver, bundle: Bundle = BUNDLE) -> None:
        self.sandbox = RunningSandbox("bombed", "tests", bundle, driver)
        self._stop = threading.Event()
        self._tending = threading.Thread(target=self._tend)

    def __enter__(self) -> RunningSandbox:
        self.sandbox.start()
        self._tending.start()
        return self.sandbox

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._tending.join()
        self.sandbox.close()

    def _tend(self) -> None:
        while not self._stop.wait(0.1):
            self.sandbox.tend()


@contextlib.contextmanager
def opened_driver(isolation: str | None = None, total_bytes: int = TOTAL_BYTES) -> Iterator[LocalDriver]:
    with (
        temporary_folder() as folder,
        contextlib.closing(LocalDriver(folder, MEMORY_BYTES, isolation, total_bytes)) as driver,
    ):
        yield driver


def occupied_mb(sandbox: RunningSandbox) -> float:
    """Private memory of a sandbox's processes and what its data folder occupies."""
    folder = Path(sandbox._usable_sessions().cluster.host).parent
    started = psutil.Process(int((folder / "pid").read_text()))
    total = 0
    for process in [started, *started.children(recursive=True)]:
        try:
            used = process.memory_info()
        except psutil.Error:
            continue
        total += used.rss - used.shared
    for path in (folder / "data").rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            continue
    return total / MB


def is_well(sandbox: RunningSandbox) -> bool:
    return sandbox.run(Role.CANDIDATE, "main", CONTROL, LIMITS).texts == CONTROL_ROWS


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_bombs_stay_below_the_caps_and_cost_one_sandbox_at_most(isolation: str) -> None:
    with (
        opened_driver(isolation) as driver,
        Tended(driver) as bombed,
        Tended(driver) as neighbour,
        ThreadPoolExecutor(8) as pool,
    ):
        host = neighbour._usable_sessions().cluster.host
        bombs = [pattern.format(number) for number in range(4) for pattern in (GREEDY, SPILLS)]
        running = [pool.submit(bombed.run, Role.CANDIDATE, "main", sql, LIMITS) for sql in bombs]
        peak = 0.0
        while not all(bomb.done() for bomb in running):
            peak = max(peak, occupied_mb(bombed))
            assert is_well(neighbour)
        outcomes = Counter(bomb.result().failure for bomb in running)
        assert set(outcomes) <= {Failure.SQL_ERROR, Failure.TIMEOUT}
        assert peak * MB < TOTAL_BYTES + MEMORY_BYTES  # it is asked twice a second
        assert is_well(bombed)
        assert neighbour._usable_sessions().cluster.host == host

        bombed._usable_sessions().cluster.stop()
        started = time.monotonic()
        assert is_well(bombed)
        seconds = time.monotonic() - started
        print(f"{isolation}: {len(bombs)} bombs at once took {peak:.0f} MB; rebuilt and answering in {seconds:.3f} s")
        assert seconds < REBUILD_SECONDS


def test_who_ends_every_server_it_meets_is_to_blame_and_its_neighbours_are_not() -> None:
    with (
        opened_driver(total_bytes=LITTLE_BYTES) as driver,
        Tended(driver, PATIENT) as sandbox,
        ThreadPoolExecutor(1) as pool,
    ):
        hostile = pool.submit(sandbox.run, Role.CANDIDATE, "main", STAYS, LIMITS)
        honest = []
        while not hostile.done():
            honest.append(sandbox.run(Role.CANDIDATE, "main", CONTROL, LIMITS))
        blamed = hostile.result()
        assert (blamed.failure, blamed.reason) == (Failure.SQL_ERROR, "ends the database server each time it runs")
        assert [answer.texts for answer in honest if answer.texts != CONTROL_ROWS] == []
        assert is_well(sandbox)


def test_a_gold_is_never_to_blame() -> None:
    with opened_driver(total_bytes=LITTLE_BYTES) as driver, Tended(driver, PATIENT) as sandbox:
        outcome = sandbox.run(Role.GOLD, "main", STAYS, LIMITS)
        assert outcome.failure is Failure.INFRASTRUCTURE
