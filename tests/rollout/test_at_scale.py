"""2,400 groups through the service as it runs, started by the command: the first row soon, every report right."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from benchmarks.support.stub_stack import DOMAIN, StubStack, stub_stack
from cli.context import INTERRUPTED
from shared.contracts.rollout import SamplingState
from tests.rollout.test_samplings import assert_each_once

pytestmark = pytest.mark.slow

GROUPS = 2400
K = 4
NAME = "large"
FIRST_ROW_SECONDS = 2.0


@pytest.fixture
def stubbed(tmp_path: Path) -> Iterator[StubStack]:
    """Real Ray, Postgres and rollout service; an engine of 0.2 s."""
    with stub_stack(tmp_path / "home", GROUPS, {"latency-seconds": "0.2"}) as stack:
        stack.up()
        yield stack


@pytest.mark.timeout(900)
async def test_a_large_sampling_lands_at_once_reports_as_it_goes_and_outlives_its_command(stubbed: StubStack) -> None:
    words = ("sample", DOMAIN, "--id", NAME, "--limit", str(GROUPS), "-k", str(K))
    command = stubbed.command(*words)
    with psycopg.connect(stubbed.dsn, autocommit=True) as ledger:
        assert await first_row_seconds(ledger) < FIRST_ROW_SECONDS
        async with stubbed.client() as client:
            for _ in range(3):
                before = landed(ledger)
                line = (await client.report(NAME)).lines[0]
                assert before <= line.rows <= landed(ledger)
                assert (line.pass_at_1.value, line.unscorable) == (1.0, 0)  # the stub's verdict is always a match
            command.send_signal(signal.SIGINT)
            output, _ = command.communicate(timeout=60)
            assert command.returncode == INTERRUPTED
            assert "the same command continues" in output
            assert landed(ledger) < GROUPS * K
            again = stubbed.command(*words)
            output, _ = await asyncio.to_thread(again.communicate, timeout=600)
            assert again.returncode == 0, output
            done = await client.sampling(NAME)
            assert (done.state, done.progress.landed, done.progress.lost) == (SamplingState.DONE, GROUPS * K, {})
            assert_each_once([row async for row in client.rows(NAME)], GROUPS, K)


async def first_row_seconds(ledger: "psycopg.Connection[tuple[float | None]]") -> float:
    """From the sampling's start to its first row, by the ledger's clock."""
    query = """
        SELECT extract(epoch FROM min(r.landed_at) - min(s.created_at))::float8
        FROM rollout.samplings s JOIN rollout.rows r USING (sampling_id) WHERE sampling_id = %s
    """
    deadline = time.monotonic() + 120
    while True:
        (seconds,) = ledger.execute(query, [NAME]).fetchone() or (None,)
        if seconds is not None:
            return seconds
        assert time.monotonic() < deadline, "no row in two minutes"
        await asyncio.sleep(0.05)


def landed(ledger: "psycopg.Connection[tuple[int]]") -> int:
    """Rows that are in the ledger now."""
    (count,) = ledger.execute("SELECT count(*) FROM rollout.rows WHERE sampling_id = %s", [NAME]).fetchone() or (0,)
    return count
