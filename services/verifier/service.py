"""Decides: from requests to verdicts. Blocking; a request runs on its own thread and on free slots (see `lanes`).

A verify request is a batch: statements are parsed together, each gold runs once a seed (kept across sandboxes of one
bundle), each distinct candidate runs once a seed (also when another request is just running it), and every item gets
its verdict in order.
"""

import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from services.verifier.answers import execution_of, verdict_of, verdict_without_running
from services.verifier.execution import Failure, Limits, Outcome
from services.verifier.explanation import Shown, first_difference, preview
from services.verifier.extraction import Extraction
from services.verifier.gold_plan import GoldPlan
from services.verifier.lanes import Lane, Slots
from services.verifier.metrics import PHASE_SECONDS, RESULT_BYTES, RESULTS, THREADS_WAITING, VERDICTS, Phase
from services.verifier.parser import Parser, Reply
from services.verifier.profiles import RULES, Rules
from services.verifier.results import Results, Source
from services.verifier.sandbox.protocol import MAIN_SEED, Role
from services.verifier.sandboxes import RunningSandbox
from services.verifier.statement import Analysis
from services.verifier.verdicts import GoldResult, Judgement, gold_result, judge
from shared.contracts.verifier import (
    ExecutedStatement,
    ExecuteRequest,
    ExecuteResponse,
    Execution,
    ExplainRequest,
    Explanation,
    Status,
    VerifyItem,
    VerifyRequest,
    VerifyResponse,
)

LONGEST_REPLY = 512 * 1024
"""Characters, some 128,000 tokens; a longer one is not read."""

_TOO_LONG = Extraction(None, f"the reply is longer than {LONGEST_REPLY // 1024} KB")

Golds = tuple[str, ...]
"""The acceptable golds of an item."""

Case = tuple[str, Golds, bool | None]
"""What decides a verdict: the statement, the acceptable golds, whether order matters."""


@dataclass(frozen=True)
class _Ground:
    """A sandbox, and which rows it held when the request began: golds and candidates must meet on the same."""

    sandbox: RunningSandbox
    data_id: str


class Verifier:
    """Verifies, executes and explains in a sandbox."""

    def __init__(self, parser: Parser, limits: Limits, workers: int, cache_bytes: int) -> None:
        self._parser = parser
        self._limits = limits
        self._slots = Slots(workers)
        self._helpers = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="statement")
        self._share = max(1, workers // 2)
        self._results = {Role.GOLD: Results(cache_bytes), Role.CANDIDATE: Results(cache_bytes)}
        THREADS_WAITING.set_function(self._slots.waiting)
        for role, kept in self._results.items():
            RESULT_BYTES.labels(role).set_function(kept.size_bytes)

    def close(self) -> None:
        """End the threads."""
        self._helpers.shutdown(wait=True, cancel_futures=True)

    def lane(self) -> Lane:
        """For one request: what its caller abandons when it goes away."""
        return Lane(self._slots, self._helpers, self._share)

    def verify(self, sandbox: RunningSandbox, request: VerifyRequest, lane: Lane) -> VerifyResponse:
        """Verdicts in the order of the items. Raises Abandoned."""
        with lane:
            return self._verify(_Ground(sandbox, sandbox.data_id), request, lane)

    def _verify(self, ground: _Ground, request: VerifyRequest, lane: Lane) -> VerifyResponse:
        started = time.perf_counter()
        rules = RULES[request.profile]
        extractions = self._extractions(request)
        item_golds = [_golds(item) for item in request.items]
        analyses, plans = self._parser.parse(
            (found.sql for found in extractions if found.sql is not None),
            (gold for golds in item_golds for gold in golds),
        )
        PHASE_SECONDS[Phase.PARSE].observe(time.perf_counter() - started)
        cases: list[Case | None] = [
            (found.sql, golds, item.order_matters) if found.sql is not None and analyses[found.sql].runnable else None
            for item, found, golds in zip(request.items, extractions, item_golds, strict=True)
        ]
        runnable = [case for case in cases if case is not None]
        gold_results = self._gold_results(
            ground, rules, plans, {(golds, ordered) for _, golds, ordered in runnable}, lane
        )
        judgements = lane.map(
            lambda case: self._judge(ground, rules, case[0], analyses[case[0]], gold_results[case[1], case[2]]),
            runnable,
        )
        verdicts = [
            verdict_without_running(rules, item, found, analyses)
            if case is None
            else verdict_of(rules, item, case[0], *judgements[case], analyses[case[0]])
            for item, found, case in zip(request.items, extractions, cases, strict=True)
        ]
        for status, count in Counter(verdict.status for verdict in verdicts).items():
            VERDICTS[status].inc(count)
        PHASE_SECONDS[Phase.REQUEST].observe(time.perf_counter() - started)
        return VerifyResponse(verdicts=verdicts)

    def _extractions(self, request: VerifyRequest) -> list[Extraction]:
        """One an item; a group's duplicates are read once."""
        replies: list[Reply | None] = [
            None if item.reply is None else (item.reply, item.finish_reason) for item in request.items
        ]
        read = self._parser.extract(
            request.profile, (reply for reply in replies if reply is not None and len(reply[0]) <= LONGEST_REPLY)
        )
        return [
            Extraction(item.sql, "given as SQL") if reply is None else read.get(reply, _TOO_LONG)
            for item, reply in zip(request.items, replies, strict=True)
        ]

    def _gold_results(
        self,
        ground: _Ground,
        rules: Rules,
        plans: Mapping[str, GoldPlan],
        wanted: set[tuple[Golds, bool | None]],
        lane: Lane,
    ) -> dict[tuple[Golds, bool | None], list[dict[str, GoldResult]]]:
        """Each acceptable gold on each seed, for each list of golds and each wish for order."""
        outcomes = self._run_golds(ground, [plans[gold] for golds, _ in wanted for gold in golds], lane)
        return {
            (golds, ordered): [
                _gold_on_seeds(rules, plans[gold], ground.sandbox.seeds, outcomes, ordered) for gold in golds
            ]
            for golds, ordered in wanted
        }

    def _run_golds(self, ground: _Ground, plans: list[GoldPlan], lane: Lane) -> dict[tuple[GoldPlan, str], Outcome]:
        """Each gold's outcome on each seed."""
        started = time.perf_counter()
        outcomes: dict[tuple[GoldPlan, str], Outcome] = {}
        missing = []
        for task in ((plan, seed) for plan in plans if plan.error is None for seed in ground.sandbox.seeds):
            plan, seed = task
            kept = None if plan.reads_clock else self._results[Role.GOLD].kept((ground.data_id, seed, plan.sql))
            if kept is None:
                missing.append(task)
            else:
                outcomes[task] = kept
                RESULTS[Role.GOLD, Source.HIT].inc()
        outcomes |= lane.map(
            lambda task: self._outcome(ground, Role.GOLD, task[1], task[0].sql, task[0].reads_clock), missing
        )
        PHASE_SECONDS[Phase.GOLD].observe(time.perf_counter() - started)
        return outcomes

    def _outcome(self, ground: _Ground, role: Role, seed: str, sql: str, reads_clock: bool) -> Outcome:
        def run() -> Outcome:
            outcome = ground.sandbox.run(role, seed, sql, self._limits)
            PHASE_SECONDS[Phase.EXECUTE].observe(outcome.exec_ms / 1000)
            return outcome if ground.sandbox.data_id == ground.data_id else _OTHER_ROWS

        if reads_clock:
            return run()
        outcome, source = self._results[role].once((ground.data_id, seed, sql), run)
        RESULTS[role, source].inc()
        return outcome

    def _judge(
        self, ground: _Ground, rules: Rules, sql: str, analysis: Analysis, golds: list[dict[str, GoldResult]]
    ) -> tuple[Judgement, float | None]:
        """The judgement, and the milliseconds the candidate ran on the main seed."""
        started = time.perf_counter()
        ran_seconds = 0.0
        ran: dict[str, Outcome] = {}

        def run(seed: str) -> Outcome:
            nonlocal ran_seconds
            before = time.perf_counter()
            if seed not in ran:
                ran[seed] = self._outcome(ground, Role.CANDIDATE, seed, sql, analysis.reads_clock)
            ran_seconds += time.perf_counter() - before
            return ran[seed]

        judgement = judge(rules, ground.sandbox.seeds, golds, run)
        PHASE_SECONDS[Phase.COMPARE].observe(time.perf_counter() - started - ran_seconds)
        return judgement, ran[MAIN_SEED].exec_ms if MAIN_SEED in ran else None

    def execute(self, sandbox: RunningSandbox, request: ExecuteRequest, lane: Lane) -> ExecuteResponse:
        """Each statement on every seed, nothing cached. Raises Abandoned."""
        analyses, _ = self._parser.parse(request.statements, ())
        tasks = [(sql, seed) for sql in request.statements if analyses[sql].runnable for seed in sandbox.seeds]
        with lane:
            executions = lane.map(lambda task: self._execute_one(sandbox, task[0], task[1], request.repeat), tasks)
        results = []
        for sql in request.statements:
            analysis = analyses[sql]
            if analysis.runnable:
                results.append(ExecutedStatement(executions=[executions[sql, seed] for seed in sandbox.seeds]))
            else:
                results.append(ExecutedStatement(executions=[], refused=analysis.refused or analysis.syntax_error))
        return ExecuteResponse(results=results)

    def _execute_one(self, sandbox: RunningSandbox, sql: str, seed: str, repeat: int) -> Execution:
        return execution_of(seed, [sandbox.run(Role.CANDIDATE, seed, sql, self._limits) for _ in range(repeat)])

    def explain(self, sandbox: RunningSandbox, request: ExplainRequest, lane: Lane) -> Explanation:
        """Both results on the first seed where they differ (else on main), and the first difference.

        Raises Abandoned.
        """
        with lane:
            return self._explain(_Ground(sandbox, sandbox.data_id), request, lane)

    def _explain(self, ground: _Ground, request: ExplainRequest, lane: Lane) -> Explanation:
        seeds = ground.sandbox.seeds
        rules, texts = RULES[request.profile], _golds(request)
        analyses, planned = self._parser.parse([request.sql], texts)
        analysis, plans = analyses[request.sql], [planned[gold] for gold in texts]
        golds = self._run_golds(ground, plans, lane)
        results = [_gold_on_seeds(rules, plan, seeds, golds, request.order_matters) for plan in plans]
        ran: dict[str, Outcome] = {}

        def run(seed: str) -> Outcome:
            ran[seed] = self._outcome(ground, Role.CANDIDATE, seed, request.sql, analysis.reads_clock)
            return ran[seed]

        if analysis.runnable:
            judgement = judge(rules, seeds, results, run)
        else:
            status = Status.REFUSED if analysis.refused else Status.SQL_ERROR
            judgement = Judgement(status, analysis.refused or analysis.syntax_error or "", [])
        seed = judgement.seeds[-1].seed if judgement.seeds and judgement.status is not Status.MATCH else MAIN_SEED
        plan = plans[judgement.gold]
        failed = Outcome(failure=Failure.SQL_ERROR, reason=plan.error or judgement.reason)
        gold, candidate = golds.get((plan, seed), failed), ran.get(seed, failed)
        shown = None if candidate.failure else Shown(rules.table(candidate), candidate.texts)
        table = results[judgement.gold][seed].table
        expected = None if table is None else Shown(table, gold.texts)
        return Explanation(
            status=judgement.status,
            difference=first_difference(rules, judgement, expected, shown),
            gold_index=judgement.gold,
            seed=seed,
            gold=preview(gold, plan.hidden_columns),
            candidate=preview(candidate, 0),
        )


_OTHER_ROWS = Outcome(
    failure=Failure.INFRASTRUCTURE, reason="the sandbox was rebuilt with other rows (its seed draws on the clock)"
)


def _golds(item: VerifyItem | ExplainRequest) -> Golds:
    return (item.gold,) if isinstance(item.gold, str) else tuple(item.gold)


def _gold_on_seeds(
    rules: Rules,
    plan: GoldPlan,
    seeds: list[str],
    outcomes: Mapping[tuple[GoldPlan, str], Outcome],
    order_matters: bool | None,
) -> dict[str, GoldResult]:
    if plan.error is not None:
        return dict.fromkeys(seeds, GoldResult(None, problem="the gold is not one SELECT that parses"))
    return {seed: gold_result(rules, plan, outcomes[plan, seed], order_matters) for seed in seeds}
