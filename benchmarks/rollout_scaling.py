"""Rows per second over 1, 2, 4 and 8 rollout workers, each with 4 groups in flight at an engine of 1 s latency.

A3 of issue 5. The engine is a stub without a limit of its own, the verifier a stub; Ray, Postgres and the rollout
service are real, replicas ask Ray for 0.1 processor. The rival is the line through one worker: the ratio is rows a
second of 8 workers over 8 times those of one. The number of workers is fixed here, not the autoscaler's, so that it is
what is measured; in flight are 4 groups a worker.

Then the other way: 8 workers go down to 1 while a sampling runs, and every row must be there once.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.stub_stack import DOMAIN, StubStack, stub_stack

from shared.contracts.rollout import Sampling, SamplingParameters, SamplingRequest, SamplingState

WORKERS = (1, 2, 4, 8)
GROUPS_PER_WORKER = 4
K = 4
LATENCY_SECONDS = 1.0
TARGET_RATIO = 0.9


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of the groups in flight a measurement")
    parser.add_argument("--alternations", type=int, default=1, help="times over all numbers of workers")
    options = parser.parse_args()
    best: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    with (
        tempfile.TemporaryDirectory(prefix="rollout-scaling-") as folder,
        stub_stack(Path(folder), WORKERS[-1] * GROUPS_PER_WORKER * options.rounds) as stack,
    ):
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start", flush=True)
        for alternation in range(options.alternations):
            for workers in WORKERS:
                up(stack, workers)
                best[workers].append(measured(stack, f"of-{workers}-{alternation}", workers, options.rounds))
        scale_down(stack, options.rounds)
    means = {workers: sum(rates) / len(rates) for workers, rates in best.items()}
    for workers, rates in best.items():
        share = means[workers] / (workers * means[1])
        print(f"{workers} workers: {[round(rate, 1) for rate in rates]} rows/s, {share:.3f} of linear")
    ours, rival = means[WORKERS[-1]], WORKERS[-1] * means[1]
    result = {
        "name": "rollout_scaling",
        "ours": round(ours, 1),
        "rival": round(rival, 1),
        "ratio": round(ours / rival, 3),
        "target": TARGET_RATIO,
        "unit": "rows/s",
    }
    print(json.dumps(result))


def up(stack: StubStack, workers: int) -> None:
    """The stack with so many workers."""
    stack.up(
        {"latency-seconds": str(LATENCY_SECONDS)},
        workers_min=str(workers),
        workers_max=str(workers),
        groups_per_worker=str(GROUPS_PER_WORKER),
        groups_in_flight=str(workers * GROUPS_PER_WORKER),
    )
    deadline = time.monotonic() + 120
    while len(stack.processes("workers")) != workers:
        assert time.monotonic() < deadline, f"{workers} workers did not come up"
        time.sleep(0.2)


def measured(stack: StubStack, name: str, workers: int, rounds: int) -> float:
    """Rows per second of one sampling, from its start to its end by the ledger's clock."""
    groups = workers * GROUPS_PER_WORKER * rounds
    done = asyncio.run(ended(stack, name, groups))
    assert done.finished_at is not None
    rate = groups * K / (done.finished_at - done.created_at).total_seconds()
    print(f"{workers} workers: {groups * K} rows, {rate:.1f} rows/s", flush=True)
    return rate


def request(name: str, groups: int) -> SamplingRequest:
    """A sampling of so many groups."""
    parameters = SamplingParameters(k=K, max_tokens=64)
    return SamplingRequest(sampling_id=name, domain=DOMAIN, parameters=parameters, limit=groups)


async def ended(stack: StubStack, name: str, groups: int) -> Sampling:
    """Started (or gone on with), and its end."""
    async with stack.client() as client:
        found = await client.start(request(name, groups))
        while found.state in (SamplingState.RUNNING, SamplingState.PAUSED):
            await asyncio.sleep(0.5)
            found = await client.sampling(name)
    assert (found.state, found.progress.lost) == (SamplingState.DONE, {}), found
    assert found.progress.landed == groups * K, found
    return found


def scale_down(stack: StubStack, rounds: int) -> None:
    """8 workers, then 1, in the middle of a sampling: what landed is kept, what was in flight is asked again."""
    groups = WORKERS[-1] * GROUPS_PER_WORKER * rounds // 2
    before = asyncio.run(landed(stack, groups))
    up(stack, 1)
    done = asyncio.run(ended(stack, "scaled-down", groups))
    counts = asyncio.run(rows_by_key(stack))
    assert len(counts) == groups * K, len(counts)
    assert set(counts.values()) == {1}
    print(f"8 workers to 1 after {before} of {groups * K} rows: {done.progress.landed} landed, each once, none lost")


async def landed(stack: StubStack, groups: int) -> int:
    """Starts the sampling; returns how many rows it has once a third is there."""
    async with stack.client() as client:
        found = await client.start(request("scaled-down", groups))
        while found.progress.landed < groups * K // 3:
            await asyncio.sleep(0.2)
            found = await client.sampling("scaled-down")
    return found.progress.landed


async def rows_by_key(stack: StubStack) -> Counter[tuple[str, int]]:
    """How often each (task, sample) is there."""
    async with stack.client() as client:
        return Counter([(row.task_id, row.sample_index) async for row in client.rows("scaled-down")])


if __name__ == "__main__":
    main()
