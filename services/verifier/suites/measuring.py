"""Which mutants each seed tells apart from their golds. Blocking; on a few threads.

A gold without rows on a seed tells nothing apart there, as in verification; a gold that fails makes the seed unusable,
because verification could never score its task again.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from services.verifier.gold_plan import GoldPlan
from services.verifier.suites.generation import Material, Mildness, draw_seed
from services.verifier.suites.mutation import Mutant
from services.verifier.suites.tables import Contents, Table
from services.verifier.suites.workbench import KILLED, Workbench
from services.verifier.verdicts import GoldResult

DRAWS = 6
"""Times a candidate seed is drawn, each milder than the one before, until every gold runs on it."""

TEND_SECONDS = 0.5

Task = TypeVar("Task")
Done = TypeVar("Done")


class Cancelled(Exception):
    """Nobody waits for the suite any more."""


@dataclass(frozen=True)
class Gold:
    """One usable gold and its mutants, numbered across all golds."""

    sql: str
    plan: GoldPlan
    tables: Sequence[str]
    """Tables that it reads."""
    mutants: Mapping[int, Mutant]


@dataclass(frozen=True)
class CandidateSeed:
    """A candidate seed and what it does."""

    contents: Contents
    kills: frozenset[int]
    golds: int
    """Golds with at least one row on it."""


def has_rows(gold: GoldResult) -> bool:
    """Whether verification compares on that seed."""
    return gold.table is not None and len(gold.table.rows) > 0


class Measuring:
    """Runs golds and mutants; as many at once as the workbench has scratch databases."""

    def __init__(self, bench: Workbench, stop: threading.Event) -> None:
        self._bench = bench
        self._stop = stop
        self._threads = ThreadPoolExecutor(len(bench.scratches), thread_name_prefix="suite")
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for scratch in bench.scratches:
            self._free.put(scratch)

    def __enter__(self) -> "Measuring":
        return self

    def __exit__(self, *_: object) -> None:
        """Returns when the statements in flight have ended."""
        self._threads.shutdown(cancel_futures=True)

    def each(self, work: Callable[[Task], Done], tasks: Iterable[Task]) -> Iterator[tuple[Task, Done]]:
        """`work` on the threads, results as they come. Raises Cancelled, and what `work` raises."""
        pending: dict[Future[Done], Task] = {self._threads.submit(work, task): task for task in tasks}
        try:
            while pending:
                finished, _ = wait(pending, TEND_SECONDS, FIRST_COMPLETED)
                self._bench.tend()
                for future in finished:
                    yield pending.pop(future), future.result()
        finally:
            for future in pending:
                future.cancel()

    def kills(self, seed: str, gold: Gold, result: GoldResult, alive: frozenset[int]) -> frozenset[int]:
        """The gold's mutants, of those alive, that a seed kills. Raises WorkbenchFailed, Cancelled."""
        killed = set()
        for number in sorted(gold.mutants.keys() & alive) if has_rows(result) else []:
            if self._stop.is_set():
                raise Cancelled
            if self._bench.verdict(seed, result, gold.mutants[number].sql) in KILLED:
                killed.add(number)
        return frozenset(killed)

    def candidate(
        self, material: Material, key: str, golds: Sequence[Gold], alive: frozenset[int], every_gold: bool = True
    ) -> CandidateSeed | None:
        """Draw the candidate seed of that key and measure it.

        With `every_gold` it is drawn milder until every gold runs on it; None when that does not help. Without, golds
        that fail on it tell nothing apart.
        """
        scratch = self._free.get()
        try:
            mildness: dict[str, Mildness] = {}
            for _ in range(DRAWS):
                if self._stop.is_set():
                    raise Cancelled
                contents = self._bench.load(scratch, material.tables, draw_seed(material, key, mildness))
                if contents is None:
                    return None
                results = [self._bench.gold(gold.plan, scratch) for gold in golds]
                failing = [gold for gold, result in zip(golds, results, strict=True) if result.table is None]
                if not failing or not every_gold:
                    kills = [self.kills(scratch, *pair, alive) for pair in zip(golds, results, strict=True)]
                    return CandidateSeed(contents, frozenset().union(*kills), sum(map(has_rows, results)))
                mildness = milder(mildness, failing, material.tables)
            return None
        finally:
            self._free.put(scratch)


def milder(mildness: Mapping[str, Mildness], failing: Iterable[Gold], tables: Sequence[Table]) -> dict[str, Mildness]:
    """One step milder for the tables that failing golds read; a table left as on the main seed keeps its parents so."""
    found = dict(mildness)
    for name in {name for gold in failing for name in gold.tables}:
        found[name] = Mildness(min(found.get(name, Mildness.BOLD) + 1, Mildness.MAIN))
    for table in reversed(tables):  # children first
        if found.get(table.name) is Mildness.MAIN:
            found |= {key.table: Mildness.MAIN for key in table.foreign_keys if key.declared}
    return found
