"""Share of wrong queries, one edit from a gold, that verification calls right: main seed alone, then with K variants.

A7 of issue 3, on the six given databases and their golds (each gold's first alternative, with all optional columns).

1. `POST /v1/suites` of a real verifier makes K ≤ 4 variants, from a pool of candidate seeds.
2. Referee: 100 further random seeds a database, drawn by the same generator with other randomness: every draw of the
   pool is keyed `pool/<seed>/<n>/<table>`, every draw of the referee `referee/<n>/<table>`, and Python's generator is
   seeded with the SHA-512 of the key. The suite sees no referee seed, and nothing is chosen or repaired by them. A
   mutant is not equivalent when the verifier's own comparison tells it from its gold on at least one of them; the
   others are left out.
3. Those mutants are verified as replies (`POST /v1/sandboxes/{id}/verify`): with the main seed alone, then with the
   variants. A verdict `match` is a survivor.

Mutants that Postgres refuses whatever the rows are in neither share.
"""

import argparse
import asyncio
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from support.running_verifier import running_verifier, temporary_folder

from services.verifier.execution import Limits
from services.verifier.parser import Parser
from services.verifier.sandbox.local import LocalDriver
from services.verifier.suites.measuring import Measuring
from services.verifier.suites.preparation import Subject, on_bundle_seeds, prepare
from services.verifier.suites.study import StudyRequest
from services.verifier.suites.workbench import Workbench
from shared.bundles.from_sql import split_sql
from shared.clients.verifier import VerifierClient
from shared.contracts.suites import SuiteProgress, SuiteRequest, SuiteResult
from shared.contracts.verifier import BundleSource, SandboxRequest, Status, VerifyItem, VerifyRequest
from shared.domain import Bundle, DomainSettings
from tests.verifier.reference import FOLDER, defog_golds

TARGET = 0.10
REFEREE_SEEDS = 100
MUTANTS_PER_GOLD = 500
"""More than any gold has: none is left out."""
LINE_SECONDS = 5.0
ITEMS_A_CALL = 512


@dataclass
class Counts:
    """Non-equivalent mutants and survivors, by mutation kind."""

    mutants: Counter[str] = field(default_factory=Counter)
    main: Counter[str] = field(default_factory=Counter)
    suite: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Counts") -> None:
        """Sum."""
        self.mutants += other.mutants
        self.main += other.main
        self.suite += other.suite

    def line(self, name: str, key: str | None = None) -> str:
        """`name  mutants  main %  suite %`; of one kind with `key`."""
        total, main, suite = (
            counter[key] if key else counter.total() for counter in (self.mutants, self.main, self.suite)
        )
        return (
            f"  {name:<16} {total:6d}   {main:5d} {100 * main / total:5.1f} %   {suite:5d} {100 * suite / total:5.1f} %"
        )


def bundle_source(name: str) -> BundleSource:
    """A given database as `sqlclimb domain init` makes it."""
    parts = split_sql((FOLDER / "defog" / name / f"{name}.sql").read_text())
    return BundleSource(name=name, schema_sql=parts.schema_sql, seed_sql=parts.seed_sql)


async def make_variants(client: VerifierClient, request: SuiteRequest) -> SuiteResult:
    """Over HTTP, with progress lines."""
    told = time.monotonic()
    async for line in client.suite(request):
        if isinstance(line, SuiteResult):
            return line
        if isinstance(line, SuiteProgress) and time.monotonic() - told > LINE_SECONDS:
            told = time.monotonic()
            print(
                f"    {line.stage}: {line.done} of {line.total}; {line.alive} of {line.mutants} mutants alive",
                flush=True,
            )
    raise RuntimeError("the verifier's answer has no result")


def referee(driver: LocalDriver, request: SuiteRequest, threads: int, stream: str) -> tuple[Subject, frozenset[int]]:
    """The same golds and mutants as the suite's, and the numbers of those that a referee seed tells apart."""
    source = request.bundle
    bundle = Bundle(DomainSettings(name=source.name), source.schema_sql, source.seed_sql)
    study = StudyRequest(request.mutants_per_gold, f"mutants/{request.seed}", source.seed_sql)
    stop = threading.Event()
    parser = Parser(1)
    try:
        with Workbench(driver, bundle, threads, Limits(200, 1_000_000)) as bench, Measuring(bench, stop) as measuring:
            subject = prepare(bench, parser, list(dict.fromkeys(request.golds)), study, stop)
            list(on_bundle_seeds(bench, measuring, subject))
            unknown = frozenset(subject.mutants)
            told = time.monotonic()
            for first in range(0, REFEREE_SEEDS, threads):
                keys = [f"{stream}/{number}" for number in range(first, min(first + threads, REFEREE_SEEDS))]

                def killed(key: str, unknown: frozenset[int] = unknown) -> frozenset[int]:
                    seed = measuring.candidate(subject.material, key, subject.golds, unknown, every_gold=False)
                    return seed.kills if seed else frozenset()

                unknown -= frozenset().union(*(found for _, found in measuring.each(killed, keys)))
                if time.monotonic() - told > LINE_SECONDS:
                    told = time.monotonic()
                    done = f"{first + len(keys)} of {REFEREE_SEEDS}"
                    print(f"    referee: {done}; {len(unknown)} mutants not told apart so far", flush=True)
            return subject, frozenset(subject.mutants) - unknown
    finally:
        parser.close()


async def survivors(
    client: VerifierClient, bundle: BundleSource, items: list[tuple[str, VerifyItem]]
) -> tuple[Counter[str], Counter[str]]:
    """Matches by mutation kind, and all statuses, in a sandbox of the bundle."""
    sandbox = await client.create_sandbox(SandboxRequest(run_id="mutant-survival", bundle=bundle))
    matched: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    try:
        for first in range(0, len(items), ITEMS_A_CALL):
            chunk = items[first : first + ITEMS_A_CALL]
            call = VerifyRequest(items=[item for _, item in chunk])
            for (kind, _), verdict in zip(chunk, (await client.verify(sandbox.sandbox_id, call)).verdicts, strict=True):
                statuses[verdict.status] += 1
                matched[kind] += verdict.status is Status.MATCH
    finally:
        await client.delete_sandbox(sandbox.sandbox_id)
    return matched, statuses


async def measure(client: VerifierClient, driver: LocalDriver, name: str, options: argparse.Namespace) -> Counts:
    """One database."""
    started = time.monotonic()
    source = bundle_source(name)
    request = SuiteRequest(
        bundle=source,
        golds=defog_golds()[name],
        variants=options.variants,
        pool=options.pool,
        seed=options.seed,
        mutants_per_gold=MUTANTS_PER_GOLD,
    )
    result = await make_variants(client, request)
    made = time.monotonic()
    subject, told = await asyncio.to_thread(referee, driver, request, options.threads, options.referee)
    for skipped in subject.skipped:
        print(f"    a gold was skipped: {skipped.reason}")
    items = [
        (str(mutant.kind), VerifyItem(sql=mutant.sql, gold=gold.sql))
        for gold in subject.golds
        for number, mutant in gold.mutants.items()
        if number in told
    ]
    whole = source.model_copy(update={"variants": {variant.name: variant.sql for variant in result.variants}})
    main, _ = await survivors(client, source, items)
    suite, _ = await survivors(client, whole, items)
    own = [("gold", VerifyItem(sql=gold.sql, gold=gold.sql)) for gold in subject.golds]
    _, verdicts = await survivors(client, whole, own)
    rows = ", ".join(f"{variant.name} {variant.rows} rows, {variant.golds} golds" for variant in result.variants)
    print(
        f"{name}: {len(subject.golds)} golds, {len(subject.mutants)} mutants ({subject.invalid} more are invalid), "
        f"{len(told)} told apart by {REFEREE_SEEDS} seeds; suite {made - started:.0f} s, all "
        f"{time.monotonic() - started:.0f} s\n    {rows}; the golds themselves: {dict(verdicts)}",
        flush=True,
    )
    return Counts(Counter(kind for kind, _ in items), main, suite)


async def run(options: argparse.Namespace) -> None:
    """All databases, one after the other."""
    total = Counts()
    by_database = {}
    with temporary_folder() as folder, temporary_folder() as own, running_verifier(folder) as verifier:
        driver = LocalDriver(own / "sandboxes", 256 * 1024**2, None)
        try:
            async with VerifierClient(verifier.url, verifier.token, timeout_seconds=600) as client:
                for name in options.databases:
                    by_database[name] = await measure(client, driver, name, options)
                    total.add(by_database[name])
        finally:
            driver.close()
    print("\n  database         mutants   survive main alone   survive main and variants")
    for name, counts in by_database.items():
        print(counts.line(name))
    print("\n  mutation         mutants   survive main alone   survive main and variants")
    for kind in sorted(total.mutants):
        print(total.line(kind, kind))
    print(total.line("all"))
    ours, rival = total.suite.total() / total.mutants.total(), total.main.total() / total.mutants.total()
    print(
        json.dumps(
            {
                "name": "mutant_survival",
                "ours": round(ours, 4),
                "rival": round(rival, 4),
                "ratio": round(rival / ours, 2) if ours else None,
                "target": TARGET,
                "unit": "share of non-equivalent single-edit mutants that survive; rival: main seed alone",
            }
        )
    )


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", nargs="+", default=sorted(defog_golds()))
    parser.add_argument("--variants", type=int, default=4)
    parser.add_argument("--pool", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--referee", default="referee", help="name of the referee's stream of draws")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
