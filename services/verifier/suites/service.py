"""Makes suites: golds in, seeds that kill their mutants out. Blocking; one at a time a verifier."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from services.verifier.execution import Limits
from services.verifier.parser import Parser
from services.verifier.sandbox.protocol import SandboxDriver
from services.verifier.suites.measuring import CandidateSeed, Measuring
from services.verifier.suites.preparation import Subject, on_bundle_seeds, prepare
from services.verifier.suites.rendering import seed_sql
from services.verifier.suites.selection import Candidate, Choice, choose
from services.verifier.suites.study import StudyRequest
from services.verifier.suites.workbench import Workbench
from shared.contracts.suites import (
    MutationKind,
    NewVariant,
    SuiteProgress,
    SuiteRequest,
    SuiteResult,
    SuiteStage,
    Tally,
    Unkilled,
)
from shared.domain import Bundle

VARIANT_PREFIX = "suite-"
"""Of the names of generated seeds."""

Report = Callable[[SuiteProgress], None]


class SuiteMaker:
    """Makes suites on clusters of its own."""

    def __init__(self, driver: SandboxDriver, limits: Limits, threads: int) -> None:
        """`threads`: statements run at once."""
        self._driver = driver
        self._limits = limits
        self._threads = threads

    def make(self, bundle: Bundle, request: SuiteRequest, report: Report, stop: threading.Event) -> SuiteResult:
        """Raises BundleFaulty, SandboxFailed, WorkbenchFailed, StudyCrashed, and Cancelled once `stop` is set."""
        golds = list(dict.fromkeys(request.golds))
        if len(golds) > request.golds_at_most:
            chosen = set(Random(f"golds/{request.seed}").sample(range(len(golds)), request.golds_at_most))
            golds = [gold for index, gold in enumerate(golds) if index in chosen]
        parser = Parser(1)
        try:
            with (
                Workbench(self._driver, bundle, self._threads, self._limits) as bench,
                Measuring(bench, stop) as measuring,
            ):
                study = StudyRequest(request.mutants_per_gold, f"mutants/{request.seed}", bundle.seed_sql)
                report(SuiteProgress(stage=SuiteStage.MUTANTS, done=0, total=len(golds)))
                subject = prepare(bench, parser, golds, study, stop)
                result = self._choose(bench, measuring, subject, request, report)
        finally:
            parser.close()
        self._check(bundle, result, report)
        return result

    def _choose(
        self, bench: Workbench, measuring: Measuring, subject: Subject, request: SuiteRequest, report: Report
    ) -> SuiteResult:
        alive = []
        for found in on_bundle_seeds(bench, measuring, subject):
            alive.append(found)
            report(_progress(SuiteStage.SUITE, len(alive), len(bench.seeds), subject, found))
        left = alive[-1]
        keys = [f"pool/{request.seed}/{number}" for number in range(request.pool)]
        drawn = measuring.each(lambda key: measuring.candidate(subject.material, key, subject.golds, alive[-1]), keys)
        by_key: dict[str, CandidateSeed | None] = {}
        for key, candidate in drawn:
            by_key[key] = candidate
            left -= candidate.kills if candidate else frozenset()
            report(_progress(SuiteStage.POOL, len(by_key), len(keys), subject, left))
        pool = [candidate for key in keys if (candidate := by_key[key]) is not None]
        choices = choose([Candidate(candidate.kills, candidate.golds) for candidate in pool], request.variants)
        after = alive[-1] - frozenset().union(*(pool[choice.index].kills for choice in choices))
        return SuiteResult(
            variants=[
                _variant(number, choice, pool[choice.index], subject, request)
                for number, choice in enumerate(choices, 1)
            ],
            golds=len(subject.golds),
            skipped=subject.skipped,
            mutants=len(subject.mutants),
            invalid=subject.invalid,
            by_mutation=_tallies(subject, alive[0], alive[-1], after),
            unkilled=[
                Unkilled(gold=gold.sql, mutation=mutant.kind, sql=mutant.sql)
                for gold in subject.golds
                for number, mutant in gold.mutants.items()
                if number in after
            ],
        )

    def _check(self, bundle: Bundle, result: SuiteResult, report: Report) -> None:
        """Load the bundle as verification will."""
        variants = {variant.name: variant.sql for variant in result.variants}
        whole = replace(bundle, variants={**bundle.variants, **variants})
        report(SuiteProgress(stage=SuiteStage.CHECK, done=0, total=len(variants)))
        self._driver.start(whole).stop()
        self._driver.forget(whole)


def _progress(stage: SuiteStage, done: int, total: int, subject: Subject, alive: frozenset[int]) -> SuiteProgress:
    return SuiteProgress(stage=stage, done=done, total=total, mutants=len(subject.mutants), alive=len(alive))


def _variant(
    number: int, choice: Choice, candidate: CandidateSeed, subject: Subject, request: SuiteRequest
) -> NewVariant:
    title = (
        f"Made by `sqlclimb domain variants` (seed {request.seed}): rows of the main seed, sampled and changed\n"
        "so that wrong queries give themselves away. No meaning beyond that; made anew by the same command."
    )
    rows = sum(map(len, candidate.contents.values()))
    text = seed_sql(subject.material.tables, candidate.contents, title, datetime.now(UTC).date())
    return NewVariant(name=f"{VARIANT_PREFIX}{number}", sql=text, kills=choice.kills, rows=rows, golds=candidate.golds)


def _tallies(
    subject: Subject, main: frozenset[int], before: frozenset[int], after: frozenset[int]
) -> dict[MutationKind, Tally]:
    numbers: dict[MutationKind, set[int]] = {}
    for number, mutant in subject.mutants.items():
        numbers.setdefault(mutant.kind, set()).add(number)
    return {
        kind: Tally(mutants=len(own), main=len(own & main), before=len(own & before), after=len(own & after))
        for kind, own in sorted(numbers.items())
    }
