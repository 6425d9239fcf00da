"""What the rollout service costs: samplings against a bare load generator on one engine, then without any engine time.

A2 of issue 5. The engine is a stub paced by sleep, its batch of 64 sequences full, some 32 rows a second: it and not
our code is what bounds both sides. Ours: `python -m services.rollout` on a real Ray and Postgres, a stub verifier; rows
a second from the sampling's start to its end, by the ledger's clock. The rival sends the same requests to the same
engine, two batches at once, and throws the answers away. In turn, raw series printed.

Then an engine and a verifier that answer at once: rows a second at k = 8, the processor time of each part a row and the
coordinator's memory, from 10^3 to 10^5 rows.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.stub_author import make_tasks
from support.stub_engine import BASE
from support.stub_stack import DOMAIN, StubStack, Use, stub_stack

from services.rollout.worker.completion import request_body
from services.rollout.worker.groups import Draw, GroupRequest, SandboxSpec
from shared.contracts.rollout import Regime, Sampling, SamplingParameters, SamplingRequest, SamplingState
from shared.contracts.verifier import Profile
from shared.domain import find_bundle, messages
from shared.ids import BASE_DIGEST
from shared.settings import REPOSITORY

K = 8
MAX_TOKENS = 64
SLOTS = 64
LATENCY_SECONDS = 2.0
SPREAD = 0.25
TARGET_RATIO = 0.95
TARGET_ROWS_PER_SECOND = 400.0
SIZES = (1_000, 10_000, 100_000)
"""Rows of the runs without engine time."""

QUEUED_GROUPS = SLOTS // K
"""The rival's requests that wait in the engine while its batch is full."""


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--groups", type=int, default=80, help="groups a stretch against the paced engine")
    parser.add_argument("--rows", type=int, default=SIZES[-1], help="rows of the longest run without engine time")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rollout-overhead-") as folder,
        stub_stack(Path(folder), max(options.groups, options.rows // K)) as stack,
    ):
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start", flush=True)
        stack.up({"latency-seconds": str(LATENCY_SECONDS), "spread": str(SPREAD), "slots": str(SLOTS)})
        ours, rival = paced(stack, options.groups, options.alternations)
        stack.up({"latency-seconds": "0", "slots": str(10**6)})
        unpaced(stack, [size for size in SIZES if size <= options.rows])
    result = {
        "name": "rollout_overhead",
        "ours": round(statistics.median(ours), 1),
        "rival": round(statistics.median(rival), 1),
        "ratio": round(statistics.median(ours) / statistics.median(rival), 3),
        "target": TARGET_RATIO,
        "unit": "rows/s",
    }
    print(json.dumps(result))


def paced(stack: StubStack, groups: int, alternations: int) -> tuple[list[float], list[float]]:
    """Rows per second of both sides, in turn; one round of each first that does not count."""
    bodies = [json.dumps(body).encode() for body in same_requests(groups)]
    engine = stack.home.url(stack.state, "inference")
    ours: list[float] = []
    rival: list[float] = []
    for alternation in range(alternations + 1):
        done = asyncio.run(sampled(stack, f"paced-{alternation}", groups))
        mine = groups * K / seconds_of(done)
        theirs = groups * K / asyncio.run(bare(engine, bodies))
        note = "  (not counted)" if alternation == 0 else ""
        print(f"ours {mine:6.1f} rows/s, bare load generator {theirs:6.1f} rows/s{note}", flush=True)
        if alternation:
            ours.append(mine)
            rival.append(theirs)
    print("ours ", [round(value, 1) for value in ours])
    print("rival", [round(value, 1) for value in rival])
    return ours, rival


def unpaced(stack: StubStack, sizes: list[int]) -> None:
    """Print rates, costs and memory without engine time."""
    asyncio.run(sampled(stack, "warm", 100))
    for size in sizes:
        before = stack.use()
        done = asyncio.run(sampled(stack, f"unpaced-{size}", size // K))
        after = stack.use()
        spent = {part: after[part].cpu_seconds - before.get(part, Use()).cpu_seconds for part in after}
        costs = ", ".join(f"{part} {1000 * seconds / size:.2f}" for part, seconds in sorted(spent.items()))
        print(
            f"{size:6d} rows: {size / seconds_of(done):5.0f} rows/s (target {TARGET_ROWS_PER_SECOND:.0f}); "
            f"processor ms a row: {costs}; in all {1000 * sum(spent.values()) / size:.2f}; "
            f"coordinator {after['coordinator'].memory_mb:.0f} MB, {after['workers'].processes} workers "
            f"{after['workers'].memory_mb:.0f} MB",
            flush=True,
        )


async def sampled(stack: StubStack, name: str, groups: int) -> Sampling:
    """A sampling at its end. Raises AssertionError when a row is missing."""
    request = SamplingRequest(
        sampling_id=name,
        domain=DOMAIN,
        parameters=SamplingParameters(k=K, max_tokens=MAX_TOKENS),
        limit=groups,
    )
    async with stack.client() as client:
        found = await client.start(request)
        while found.state in (SamplingState.RUNNING, SamplingState.PAUSED):
            await asyncio.sleep(1.0)
            found = await client.sampling(name)
    assert found.state is SamplingState.DONE, found
    assert found.progress.landed == groups * K, found
    return found


def seconds_of(sampling: Sampling) -> float:
    """From its start to its end."""
    assert sampling.finished_at is not None
    return (sampling.finished_at - sampling.created_at).total_seconds()


def same_requests(groups: int) -> list[dict[str, object]]:
    """The bodies that a sampling of so many groups sends."""
    bundle = find_bundle(DOMAIN, [REPOSITORY / "domains"])
    return [
        request_body(
            GroupRequest(
                sampling_id="bare",
                task_id=task.id,
                sample_indices=tuple(range(K)),
                messages=tuple(messages(bundle, Regime(), task.question)),
                draw=Draw(temperature=0.7, top_p=0.95, max_tokens=MAX_TOKENS, thinking=False),
                served_model=BASE,
                adapter_digest=BASE_DIGEST,
                sandbox=SandboxSpec("bare", "bare", DOMAIN),
                profile=Profile.STANDARD,
                order_matters=False,
                gold="",
            )
        )
        for task in make_tasks(groups, DOMAIN)
    ]


async def bare(engine: str, bodies: list[bytes]) -> float:
    """Seconds until the engine has answered all bodies, its batch full and as many waiting."""
    host, port = engine.removeprefix("http://").split(":")
    waiting = iter(bodies)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n"

    async def ask() -> None:
        for body in waiting:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
            writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(SLOTS // K + QUEUED_GROUPS)))
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
