"""Who is to blame when a cluster that runs one statement alone dies under it: real clusters, killed from outside."""

import contextlib
import threading
from collections.abc import Iterator

import psutil
import pytest

from services.verifier.execution import Failure, Limits
from services.verifier.quarantine import DEATHS, Quarantine
from services.verifier.sandbox.local import LocalCluster, LocalDriver
from services.verifier.sandbox.session import Sessions
from shared.domain import Bundle, DomainSettings
from tests.verifier.conftest import temporary_folder
from tests.verifier.isolations import ISOLATIONS, MEMORY_BYTES
from tests.verifier.store import MAIN, SCHEMA
from tests.verifier.test_isolation import backends, servers_among, until

LIMITS = Limits(rows=200, bytes=1_000_000)
BUNDLE = Bundle(DomainSettings(name="bookstore", statement_timeout_seconds=2), SCHEMA, MAIN)
ENDLESS = "SELECT count(*) FROM " + ", ".join(f"book b{i}" for i in range(30))


@pytest.fixture(scope="module", params=ISOLATIONS)
def driver(request: pytest.FixtureRequest) -> Iterator[LocalDriver]:
    with temporary_folder() as folder, contextlib.closing(LocalDriver(folder, MEMORY_BYTES, request.param)) as opened:
        yield opened


def kill(quarantine: Quarantine, victims: list[str]) -> None:
    """One victim for each cluster that the statement runs on alone: its `server` with all of it, or its `backend`."""
    met: list[Sessions] = []
    for victim in victims:
        until(lambda: (held := quarantine._sessions) is not None and held not in met and held.busy)
        assert quarantine._sessions is not None
        met.append(quarantine._sessions)
        cluster = met[-1].cluster
        assert isinstance(cluster, LocalCluster)
        processes = servers_among(cluster._server.processes())
        for process in processes if victim == "server" else backends(processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.parametrize(
    "victims, failure",
    [
        (["backend", "backend"], Failure.SQL_ERROR),  # as a statement does that crashes Postgres
        (["server", "server"], Failure.INFRASTRUCTURE),  # as no statement does
        (["backend", "server"], Failure.INFRASTRUCTURE),
        (["server"], Failure.TIMEOUT),  # its own end, on the second cluster
        (["backend"], Failure.TIMEOUT),
    ],
)
def test_only_a_statement_whose_server_outlives_it_each_time_is_to_blame(
    driver: LocalDriver, victims: list[str], failure: Failure
) -> None:
    assert len(victims) <= DEATHS
    quarantine = Quarantine(driver, BUNDLE)
    killer = threading.Thread(target=kill, args=(quarantine, victims))
    killer.start()
    try:
        assert quarantine.run("main", ENDLESS, LIMITS).failure is failure
    finally:
        killer.join()
