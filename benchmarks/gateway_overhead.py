"""What the gateway costs (A4 of issue 6): 16 callers ask a paced engine directly, then through the gateway, in turn.

The engine is a stand-in that sends a token every 20 ms whatever the load, so that every other millisecond is the
gateway's (or the wire's, which both have). Replies in one piece and streamed; of the latter also the first token's time
and how far apart the parts arrive: a buffered stream would arrive at once. Raw series printed. Target: 97 % of the
direct tokens per second, under 5 ms added to the median latency.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from support.gateway import running_gateway
from support.lean_http import LeanConnection

from cli.stack.home import free_ports
from tests.inference.support import Gateway, Service

CALLERS = 16
TOKENS = 60
TOKEN_SECONDS = 0.02
TARGET_RATIO = 0.97
TARGET_ADDED_MS = 5.0
SYSTEM = "CREATE TABLE products (id integer, name text, price numeric, category text); " * 50


@dataclass
class Series:
    """One side's measurements of one turn."""

    tokens_per_second: float = 0.0
    """Of all callers together."""
    latencies: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    """Seconds between the parts of a stream."""


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--requests", type=int, default=5, help="of each caller in each turn")
    arguments = parser.parse_args()
    port = free_ports(1)[0]
    environment = {
        "SQLCLIMB_PORT": str(port),
        "SQLCLIMB_TOKEN_SECONDS": str(TOKEN_SECONDS),
        "SQLCLIMB_REPLY_TOKENS": str(TOKENS),
    }
    with TemporaryDirectory() as name:
        folder = Path(name)
        module = "benchmarks.support.paced_engine"
        engine = Service(module, f"http://127.0.0.1:{port}", "/health", environment, folder / "engine.log")
        engine.start()
        try:
            engine.wait_ready()
            with running_gateway([engine], folder, folder) as gateway:
                measured = asyncio.run(measure(gateway, arguments.alternations, arguments.requests))
        finally:
            engine.stop()
    report(measured)


async def measure(gateway: Gateway, alternations: int, requests: int) -> dict[tuple[bool, str], list[Series]]:
    """Streamed or not, and side, to a series for each turn."""
    found: dict[tuple[bool, str], list[Series]] = {}
    sides = {"direct": gateway.engine.url, "gateway": gateway.url}
    for url in sides.values():  # connections, caches, imports
        await turn(url, gateway.token(), stream=True, requests=1)
    for _ in range(alternations):
        for stream in (False, True):
            for side, url in sides.items():
                found.setdefault((stream, side), []).append(await turn(url, gateway.token(), stream, requests))
    return found


async def turn(url: str, token: str, stream: bool, requests: int) -> Series:
    """All callers, each with so many requests one after the other, out of step as callers are."""
    series = Series()

    async def caller(number: int) -> None:
        await asyncio.sleep(random.Random(number).uniform(0.0, TOKENS * TOKEN_SECONDS))
        started = time.perf_counter()
        async with LeanConnection(url, token) as connection:
            for at in range(requests):
                messages = [
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": f"question {number} {at}"},
                ]
                fields = {"model": "base", "messages": messages, "stream": stream, "max_tokens": TOKENS}
                body = json.dumps(fields | {"logprobs": True, "return_token_ids": True}).encode()
                asked = time.perf_counter()
                if stream:
                    times = [time.perf_counter() async for _ in connection.stream("/v1/chat/completions", body)]
                    series.firsts.append(times[0] - asked)
                    series.gaps.extend(after - before for before, after in itertools.pairwise(times))
                else:
                    await connection.post("/v1/chat/completions", body)
                series.latencies.append(time.perf_counter() - asked)
        series.tokens_per_second += requests * TOKENS / (time.perf_counter() - started)

    await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    return series


def milliseconds(seconds: list[float]) -> float:
    """Their median."""
    return statistics.median(seconds) * 1000


def report(found: dict[tuple[bool, str], list[Series]]) -> None:
    """Tables and the last line."""
    ratios, added = [], []
    for stream in (False, True):
        direct, ours = found[stream, "direct"], found[stream, "gateway"]
        print(f"\n{'streamed' if stream else 'in one piece'}: {CALLERS} callers, {TOKENS} tokens of {TOKEN_SECONDS} s")
        for side, turns in (("direct", direct), ("gateway", ours)):
            print(f"  {side:8}tokens/s     ", *(f"{turn.tokens_per_second:8.1f}" for turn in turns))
            print(f"  {side:8}p50 ms       ", *(f"{milliseconds(turn.latencies):8.1f}" for turn in turns))
            if stream:
                print(f"  {side:8}first ms     ", *(f"{milliseconds(turn.firsts):8.1f}" for turn in turns))
                print(f"  {side:8}gap ms       ", *(f"{milliseconds(turn.gaps):8.1f}" for turn in turns))
        ratio = statistics.median(
            other.tokens_per_second / one.tokens_per_second for one, other in zip(direct, ours, strict=True)
        )
        more = statistics.median(
            milliseconds(other.latencies) - milliseconds(one.latencies) for one, other in zip(direct, ours, strict=True)
        )
        ratios.append(ratio)
        added.append(more)
        print(f"  tokens per second kept {ratio:.4f} (target {TARGET_RATIO}); added to the median {more:.2f} ms")
    through_gateway, straight = (
        statistics.median(series.tokens_per_second for stream in (False, True) for series in found[stream, side])
        for side in ("gateway", "direct")
    )
    result = {
        "name": "gateway_overhead",
        "ours": round(through_gateway, 1),
        "rival": round(straight, 1),
        "ratio": round(min(ratios), 4),
        "target": TARGET_RATIO,
        "unit": "tokens/s at 16 callers; ratio: the worse of streamed and not",
        "added_p50_ms": round(max(added), 2),
        "added_p50_ms_target": TARGET_ADDED_MS,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
