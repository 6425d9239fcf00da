"""Verdicts per second on a GRPO-shaped mix: the verifier over HTTP against the published recipe's pattern.

A6 of issue 3. Ours: `python -m services.verifier`, groups of 16 a request, 32 requests at once, domain shop. The
rival: a connection per verification, gold re-executed each time, the recipe's comparison, 32 threads in this process
and no HTTP (see `support/recipe_verifier.py`). Same machine, Postgres build, rows and replies (made beforehand); the
recipe's server is as initdb sets it up. Every request of ours authenticates, by its token; so does every connection of
the recipe's, by its password, and beside it stands the recipe on a server that is open to every local user. The recipe
knows one database, so the ratio is of ours on the main seed alone; ours with shop's variants is shown too.

Five alternations, raw series printed. Then single-item requests (latency), the price of a session's reset, and 10^5
verdicts (cost per verdict and memory stay flat).
"""

import argparse
import asyncio
import gc
import itertools
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import psutil
import psycopg
from support.grpo_mix import GROUP, Group, groups, proposals, shop
from support.lean_http import LeanConnection
from support.recipe_verifier import verify as recipe_verify
from support.running_verifier import RunningVerifier, cpu_seconds_below, running_verifier, temporary_folder
from support.stock_postgres import StockPostgres, stock_postgres

from services.author.teachers.base import Proposal
from services.verifier.sandbox.local import LocalCluster, LocalDriver
from services.verifier.sandbox.protocol import MAIN_SEED, Role
from services.verifier.sandbox.session import Sessions
from shared.contracts.verifier import BundleSource, SandboxRequest, VerifyItem, VerifyRequest
from shared.domain import Bundle

CONCURRENCY = 32
TASKS = 300
"""About the recipe's band (326)."""
LARGEST_GOLD_ROWS = 50
"""The author's gate."""
TARGET_RATIO = 10.0
TARGET_P99_MS = 100.0
SANDBOX_MEMORY_BYTES = 256 * 1024**2
MAIN_ONLY, SUITE = "main-only", "suite"
"""Sandbox ids."""


@dataclass
class Stretch:
    """One timed stretch of one side."""

    verdicts: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)
    """Of each request."""

    @property
    def per_second(self) -> float:
        """Verdicts per second."""
        return self.verdicts / self.seconds


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--groups", type=int, default=400, help="groups a stretch of ours; the recipe gets a tenth")
    parser.add_argument("--verdicts", type=int, default=100_000, help="verdicts of the long run; 0: none")
    options = parser.parse_args()
    bundle = shop()
    gc.disable()  # a pause of the load generator's would read as latency of the service
    with temporary_folder() as folder:
        driver = LocalDriver(folder / "gates", SANDBOX_MEMORY_BYTES, None)
        try:
            cluster = driver.start(bundle)
            tasks = gated(cluster, bundle, proposals(bundle, 3 * TASKS))[:TASKS]
            print(f"{len(tasks)} tasks, {os.cpu_count()} cores, PostgreSQL {driver.postgres_version}")
            print(f"load average {os.getloadavg()[0]:.1f} at the start: neighbours slow both sides")
            reset_price(cluster, tasks)
            cluster.stop()
            with stock_postgres(folder / "stock", bundle) as stock, running_verifier(folder) as verifier:
                asyncio.run(measure(verifier, bundle, stock, tasks, options))
        finally:
            driver.close()


def conninfo(cluster: LocalCluster, seed: str = MAIN_SEED) -> str:
    """As a candidate, over the Unix socket."""
    return f"host={cluster.host} user={Role.CANDIDATE} dbname={cluster.database(seed)}"


def gated(cluster: LocalCluster, bundle: Bundle, proposed: list[Proposal]) -> list[Proposal]:
    """Those whose gold returns 1 to 50 rows on every seed, as the author keeps them."""
    kept = proposed
    for seed in (MAIN_SEED, *bundle.variants):
        with psycopg.connect(conninfo(cluster, seed), autocommit=True) as connection:
            rows = [len(connection.execute(proposal.gold.encode()).fetchall()) for proposal in kept]
        kept = [proposal for proposal, count in zip(kept, rows, strict=True) if 1 <= count <= LARGEST_GOLD_ROWS]
    return kept


def reset_price(cluster: LocalCluster, tasks: list[Proposal]) -> None:
    """Print what a query costs in a warm session with its reset, and in a new connection."""
    golds = [task.gold for task in tasks[:200]]
    sessions = Sessions(cluster, 5.0)

    def reset() -> None:
        for gold in golds:
            with sessions.session(Role.CANDIDATE, MAIN_SEED) as session:
                session.run(gold, 200, 1_000_000)

    def kept() -> None:
        with psycopg.connect(conninfo(cluster), autocommit=True, prepare_threshold=None) as connection:
            for gold in golds:
                connection.execute(gold.encode()).fetchall()

    def connect() -> None:
        for gold in golds:
            with psycopg.connect(conninfo(cluster), autocommit=True) as connection:
                connection.execute(gold.encode()).fetchall()

    def milliseconds(work: Callable[[], None]) -> float:
        work()
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1000 / len(golds)

    print(f"a query in one session {milliseconds(kept):.2f} ms, with DISCARD ALL behind it {milliseconds(reset):.2f}")
    print(f"a query in a new connection {milliseconds(connect):.2f} ms")
    sessions.close()


async def measure(
    verifier: RunningVerifier, bundle: Bundle, stock: StockPostgres, tasks: list[Proposal], options: argparse.Namespace
) -> None:
    """Everything, in the order printed."""
    async with verifier.client() as client:
        for sandbox_id, variants in ((MAIN_ONLY, {}), (SUITE, bundle.variants)):
            source = BundleSource(
                name=bundle.name, schema_sql=bundle.schema_sql, seed_sql=bundle.seed_sql, variants=variants
            )
            await client.create_sandbox(SandboxRequest(sandbox_id=sandbox_id, run_id="benchmark", bundle=source))
    for sandbox_id in (MAIN_ONLY, SUITE):  # golds, sessions, parsers
        await ours(verifier, sandbox_id, some_groups(tasks, 1, len(tasks)))
    await agreement(verifier, stock.without, some_groups(tasks, 2, 40))
    rates = await alternate(verifier, stock, tasks, options)
    p99_ms = await single_items(verifier, tasks, options.groups)
    if options.verdicts:
        await long_run(verifier, tasks, options.verdicts)
    main_only, suite, theirs, opened = (statistics.median(series) for series in rates)
    print(f"single items: p99 {p99_ms:.1f} ms, target under {TARGET_P99_MS:.0f} ms")
    print(f"with the suite's seeds: {suite / theirs:.2f} times the recipe's rate on its one")
    print(f"where the recipe's server is open to every local user: {main_only / opened:.2f} times its rate")
    result = {"name": "verifier_throughput", "ours": round(main_only, 1), "rival": round(theirs, 1)}
    print(json.dumps(result | {"ratio": round(main_only / theirs, 2), "target": TARGET_RATIO, "unit": "verdicts/s"}))


def some_groups(tasks: list[Proposal], seed: int, count: int) -> list[Group]:
    """So many of the endless ones."""
    return list(itertools.islice(groups(tasks, seed), count))


def body(group: Group, replies: Sequence[str]) -> bytes:
    """A request as the rollout worker sends it."""
    items = [VerifyItem(reply=reply, gold=group.gold, order_matters=group.order_matters) for reply in replies]
    return VerifyRequest(items=items).model_dump_json(exclude_none=True).encode()


async def ours(verifier: RunningVerifier, sandbox_id: str, work: list[Group], items_a_request: int = GROUP) -> Stretch:
    """All replies of the groups through the service."""
    done = Stretch()
    bodies = iter(
        [
            body(group, group.replies[start : start + items_a_request])
            for group in work
            for start in range(0, GROUP, items_a_request)
        ]
    )

    async def worker() -> None:
        async with LeanConnection(verifier.url, verifier.token) as connection:
            for content in bodies:
                sent = time.perf_counter()
                answer = await connection.post(f"/v1/sandboxes/{sandbox_id}/verify", content)
                done.latencies_ms.append((time.perf_counter() - sent) * 1000)
                done.statuses.update(verdict["status"] for verdict in json.loads(answer)["verdicts"])

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    done.seconds = time.perf_counter() - started
    done.verdicts = done.statuses.total()
    return done


def recipe(rival: str, work: list[Group]) -> Stretch:
    """All replies of the groups through the recipe's function."""
    items = [(reply, group.gold) for group in work for reply in group.replies]
    started = time.perf_counter()
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        matched = list(pool.map(lambda item: recipe_verify(rival, *item), items))
    return Stretch(len(items), time.perf_counter() - started, Counter(map(str, matched)))


async def agreement(verifier: RunningVerifier, rival: str, work: list[Group]) -> None:
    """Print on how many replies both sides say the same."""
    counts: Counter[str] = Counter()
    async with LeanConnection(verifier.url, verifier.token) as connection:
        for group in work:
            replies = list(dict.fromkeys(group.replies))
            answer = json.loads(await connection.post(f"/v1/sandboxes/{MAIN_ONLY}/verify", body(group, replies)))
            for reply, verdict in zip(replies, answer["verdicts"], strict=True):
                matches = verdict["status"] == "match"
                same = recipe_verify(rival, reply, group.gold) is matches
                counts["both match" if matches and same else "neither" if same else "they differ"] += 1
    print(f"on the main seed, ours and the recipe's rule: {dict(counts)}")


async def alternate(
    verifier: RunningVerifier, stock: StockPostgres, tasks: list[Proposal], options: argparse.Namespace
) -> list[list[float]]:
    """Verdicts per second of each stretch: ours on the main seed, ours with the suite, theirs, theirs without login."""
    names = ("ours", "ours, suite", "recipe", "recipe, open")
    series: list[list[float]] = [[] for _ in names]
    me = psutil.Process()  # the recipe's threads; its server is among our children, as is the idle verifier
    for number in range(options.alternations):
        work = some_groups(tasks, 100 + number, options.groups)
        again = some_groups(tasks, 200 + number, options.groups)
        before = sum(verifier.cpu_seconds())
        stretches = [await ours(verifier, MAIN_ONLY, work)]
        cpu_ms = [(sum(verifier.cpu_seconds()) - before) * 1000 / stretches[0].verdicts]
        stretches.append(await ours(verifier, SUITE, again))
        for rival in (stock.with_password, stock.without):
            before = time.process_time() + cpu_seconds_below(me)
            stretches.append(await asyncio.to_thread(recipe, rival, work[: options.groups // 10]))
            spent = time.process_time() + cpu_seconds_below(me) - before
            cpu_ms.append(spent * 1000 / stretches[-1].verdicts)
        for rates, found in zip(series, stretches, strict=True):
            rates.append(found.per_second)
        shown = ", ".join(f"{name} {rates[-1]:.1f}/s" for name, rates in zip(names, series, strict=True))
        print(f"  {number + 1}: {shown}; CPU ms a verdict: {', '.join(f'{each:.3f}' for each in cpu_ms)}")
        print(f"     {dict(sorted(stretches[0].statuses.items()))}")
    for name, rates in zip(names, series, strict=True):
        print(f"{name:<14}{[round(rate, 1) for rate in rates]} verdicts/s")
    return series


async def single_items(verifier: RunningVerifier, tasks: list[Proposal], count: int) -> float:
    """Latency of one-item requests, 32 at once, in milliseconds: prints percentiles, answers p99."""
    found = await ours(verifier, MAIN_ONLY, some_groups(tasks, 900, count), items_a_request=1)
    cuts = statistics.quantiles(found.latencies_ms, n=100)
    print(
        f"single items, {CONCURRENCY} at once: {found.per_second:.0f}/s, p50 {cuts[49]:.1f} p95 {cuts[94]:.1f} "
        f"p99 {cuts[98]:.1f} max {max(found.latencies_ms):.1f} ms ({found.verdicts} requests)"
    )
    return cuts[98]


async def long_run(verifier: RunningVerifier, tasks: list[Proposal], verdicts: int) -> None:
    """Cost per verdict and memory by decade, in one run."""
    source = groups(tasks, seed=5000)
    done, milestone = 0, 100
    print("  verdicts   ms each   CPU ms each: service + Postgres and parsers   PSS MB: service + the rest")
    while done < verdicts:
        wall, own, below, count = 0.0, 0.0, 0.0, 0
        while done + count < milestone:  # in parts: bodies are made outside the clock, and not all at once
            part = list(itertools.islice(source, min(500, -(-(milestone - done - count) // GROUP))))
            before = verifier.cpu_seconds()
            passed = await ours(verifier, MAIN_ONLY, part)
            after = verifier.cpu_seconds()
            wall, count = wall + passed.seconds, count + passed.verdicts
            own, below = own + after[0] - before[0], below + after[1] - before[1]
        done += count
        memory = verifier.resident_mb()
        print(
            f"  {done:8d}   {wall / count * 1000:7.3f}   {own / count * 1000:.3f} + {below / count * 1000:.3f}"
            f"                                 {memory[0]:.0f} + {memory[1]:.0f}"
        )
        milestone *= 10


if __name__ == "__main__":
    main()
