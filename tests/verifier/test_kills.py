"""SIGKILL under load, with a real verifier: no wrong verdict, and nothing left that a start does not remove."""

import asyncio
import os
import random
import signal
from pathlib import Path

import psutil
import pytest

from shared.contracts.verifier import SandboxRequest, Status
from tests.verifier.conftest import VerifierProcess, start_verifier
from tests.verifier.isolations import ISOLATIONS
from tests.verifier.load import BUNDLE, Tally, verify_all
from tests.verifier.store import GOLD, sandbox_request, verify_sql
from tests.verifier.test_isolation import ALL_PROCESSES, backends, segments_of, servers_among, until, working_below

pytestmark = pytest.mark.slow

CONCURRENT = 60
"""Requests at once here; `.ci/verifier_kills.py` has 200 and many kills."""

SANDBOX = SandboxRequest(sandbox_id="load", run_id="tests", bundle=BUNDLE)


def servers(verifier: VerifierProcess) -> list[psutil.Process]:
    """The Postgres processes of its sandboxes: each server, then its children."""
    found = []
    for file in (verifier.folder / "sandboxes" / "clusters").glob("*/pid"):
        started = psutil.Process(int(file.read_text()))
        found += servers_among([started, *started.children(recursive=True)])
    return found


def servers_at_work(verifier: VerifierProcess) -> list[psutil.Process]:
    """All of them, once a statement runs."""
    until(lambda: backends(servers(verifier)) != [])
    return servers(verifier)


def mounts() -> str:
    return Path("/proc/self/mounts").read_text()


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_kills_of_postgres_under_load_make_no_wrong_verdict(isolation: str, open_folder: Path) -> None:
    verifier = start_verifier(open_folder, isolation=isolation)
    draw, tally = random.Random(3), Tally()
    try:
        async with verifier.client() as client:
            await client.create_sandbox(SANDBOX)
            for round_number, victim in enumerate(("server", "backend")):
                load = asyncio.create_task(verify_all(client, SANDBOX, CONCURRENT, round_number * CONCURRENT, tally))
                found = await asyncio.to_thread(servers_at_work, verifier)
                (found[0] if victim == "server" else draw.choice(backends(found))).kill()
                await load
    finally:
        verifier.stop()
    assert tally.wrong == []
    assert tally.right + tally.unscorable == 2 * CONCURRENT
    assert tally.right > CONCURRENT  # one that was hit runs again


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_killed_verifier_gives_the_same_verdicts_later_and_its_leftovers_go(
    isolation: str, open_folder: Path
) -> None:
    mounts_before, segments_before = mounts(), segments_of(ALL_PROCESSES)
    first = start_verifier(open_folder, isolation=isolation)
    tally = Tally()
    family = psutil.Process(first.process.pid)
    async with first.client() as client:
        await client.create_sandbox(SANDBOX)
        load = asyncio.create_task(verify_all(client, SANDBOX, CONCURRENT, 0, tally))
        killed = {server.pid for server in await asyncio.to_thread(servers_at_work, first)}
        parsers = [p for p in family.children() if "parser_process" in " ".join(p.cmdline())]
        (cluster,) = (open_folder / "sandboxes" / "clusters").iterdir()
        os.kill(first.process.pid, signal.SIGKILL)
        await asyncio.to_thread(first.process.wait)
        second = await asyncio.to_thread(
            lambda: start_verifier(open_folder, isolation=isolation, port=first.url.rsplit(":")[-1])
        )
        try:
            assert parsers and psutil.wait_procs(parsers, timeout=10)[1] == []
            assert not cluster.exists()
            assert working_below(cluster) == []
            await load
            answer = await client.verify("load", verify_sql(GOLD, GOLD))
            assert answer.verdicts[0].status is Status.MATCH
        finally:
            second.stop()
    assert (tally.wrong, tally.right) == ([], CONCURRENT)
    assert tally.unreachable + tally.remade > 0
    assert list((open_folder / "sandboxes" / "clusters").iterdir()) == []
    assert working_below(open_folder) == []
    assert segments_of(killed) <= segments_before
    assert mounts() == mounts_before


async def test_twenty_sandboxes_come_and_go_without_a_trace(open_folder: Path) -> None:
    verifier = start_verifier(open_folder)
    process = psutil.Process(verifier.process.pid)
    made: set[int] = set()
    segments_before = segments_of(ALL_PROCESSES)
    try:
        async with verifier.client() as client:
            held: list[tuple[int, int]] = []
            for number in range(21):
                await client.create_sandbox(sandbox_request(f"passing-{number}"))
                answer = await client.verify(f"passing-{number}", verify_sql(GOLD, GOLD))
                assert answer.verdicts[0].status is Status.MATCH
                made.update(server.pid for server in servers(verifier))
                await client.delete_sandbox(f"passing-{number}")
                await client.delete_sandbox(f"passing-{number}")
                held.append((process.num_fds(), len(process.children(recursive=True))))
            assert held[-1] == held[0]
            assert list((open_folder / "sandboxes" / "clusters").iterdir()) == []
    finally:
        verifier.stop()
    assert len(made) > 20 and segments_of(made) <= segments_before
