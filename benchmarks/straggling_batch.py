"""What stragglers cost a training batch: the same batch with and without 5 % of its requests 50 times slower.

A4 of issue 5: at most 1.5 times as long, and nothing is scored 0 for being late. The engine and the verifier are stubs
(the engine paced by sleep), the rollout service is real, on Ray and Postgres, with its own default settings. A request
is a whole group of 16 samples; which ones are slow is drawn anew for every batch. In turn, raw series printed.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.stub_author import train_tasks
from support.stub_stack import DOMAIN, StubStack, stub_stack

from shared.contracts.rollout import BatchEnd, BatchGroup, BatchRequest
from shared.ids import BASE_DIGEST

PROMPTS = 32
K = 16
TARGET = 1.5
CLEAN = {"slow-share": "0", "slow-factor": "1"}
STRAGGLING = {"slow-share": "0.05", "slow-factor": "50"}


@dataclass(frozen=True)
class Measured:
    """One batch."""

    seconds: float
    lost: dict[str, int]
    rewards: set[float | None]


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--latency-seconds", type=float, default=12.0, help="of a request that is not slow")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="straggling-batch-") as folder, stub_stack(Path(folder), 1) as stack:
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start", flush=True)
        latency = {"latency-seconds": str(options.latency_seconds), "slots": str(10**6)}
        stack.up(latency | CLEAN)
        asyncio.run(measured(stack, step=0))  # not counted: connections, imports
        straggling: list[float] = []
        clean: list[float] = []
        for alternation in range(options.alternations):
            for kind, series in ((CLEAN, clean), (STRAGGLING, straggling)):
                stack.up(latency | kind | {"seed": str(alternation)})
                found = asyncio.run(measured(stack, step=2 * alternation + 1 + (kind is STRAGGLING)))
                assert 0.0 not in found.rewards, found
                name = "with stragglers" if kind is STRAGGLING else "without"
                print(f"{name:15s} {found.seconds:6.2f} s, left out {found.lost}", flush=True)
                series.append(found.seconds)
    print("with stragglers", [round(value, 2) for value in straggling])
    print("without        ", [round(value, 2) for value in clean])
    result = {
        "name": "straggling_batch",
        "ours": round(statistics.median(straggling), 2),
        "rival": round(statistics.median(clean), 2),
        "ratio": round(statistics.median(straggling) / statistics.median(clean), 3),
        "target": TARGET,
        "unit": "s",
    }
    print(json.dumps(result))


async def measured(stack: StubStack, step: int) -> Measured:
    """One batch from the call to its last line."""
    request = BatchRequest(
        run_id="straggling",
        attempt=1,
        step=step,
        domain=DOMAIN,
        policy="base",
        adapter_digest=BASE_DIGEST,
        task_ids=[task.id for task in train_tasks(DOMAIN)[:PROMPTS]],
        k=K,
        max_tokens=64,
    )
    began = time.perf_counter()
    async with stack.client() as client:
        lines = [line async for line in client.batch(request)]
    seconds = time.perf_counter() - began
    *groups, end = lines
    assert isinstance(end, BatchEnd), "the stream was cut"
    samples = [sample for group in groups if isinstance(group, BatchGroup) for sample in group.samples]
    assert len(samples) == PROMPTS * K
    assert sum(sample.reward is None for sample in samples) == sum(end.lost.values())
    return Measured(seconds, end.lost, {sample.reward for sample in samples})


if __name__ == "__main__":
    main()
