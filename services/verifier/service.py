"""Decides: from requests to verdicts. Blocking; runs on worker threads.

A verify request is a batch: statements are parsed together, each gold runs once a seed (cached across sandboxes of one
bundle), each distinct candidate runs once a seed, and every item gets its verdict in order.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from services.verifier.execution import Failure, Limits, Outcome
from services.verifier.explanation import first_difference, preview
from services.verifier.extraction import Extraction, extract
from services.verifier.gold_plan import GoldPlan
from services.verifier.metrics import GOLD_RESULTS, VERDICTS, VERIFY_SECONDS
from services.verifier.parser import Parser
from services.verifier.results import ResultCache
from services.verifier.sandbox.protocol import MAIN_SEED, Role
from services.verifier.sandboxes import RunningSandbox
from services.verifier.signature import all_null, signature
from services.verifier.statement import Analysis
from services.verifier.verdicts import GoldResult, Judgement, gold_result, judge, reward
from shared.contracts.verifier import (
    ExecutedStatement,
    ExecuteRequest,
    ExecuteResponse,
    Execution,
    ExplainRequest,
    Explanation,
    Status,
    Verdict,
    VerifyItem,
    VerifyRequest,
    VerifyResponse,
)

Task = TypeVar("Task")
Done = TypeVar("Done")

NOT_CACHED = frozenset({Failure.INFRASTRUCTURE, Failure.TIMEOUT})
"""Failures that may not repeat."""

Case = tuple[str, tuple[str, ...], bool | None]
"""What decides a verdict: the statement, the acceptable golds, whether order matters."""


class Verifier:
    """Verifies, executes and explains in a sandbox."""

    def __init__(self, parser: Parser, limits: Limits, workers: int, cache_bytes: int) -> None:
        self._parser = parser
        self._limits = limits
        self._workers = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="statement")
        self._gold_results = ResultCache(cache_bytes)
        self._candidate_results = ResultCache(cache_bytes)

    def close(self) -> None:
        """End the worker threads."""
        self._workers.shutdown(wait=True, cancel_futures=True)

    def _each(self, work: Callable[[Task], Done], tasks: Iterable[Task]) -> dict[Task, Done]:
        """`work` over distinct tasks on the worker threads."""
        distinct = list(dict.fromkeys(tasks))
        return dict(zip(distinct, self._workers.map(work, distinct), strict=True))

    def verify(self, sandbox: RunningSandbox, request: VerifyRequest) -> VerifyResponse:
        """Verdicts in the order of the items."""
        started = time.perf_counter()
        extractions = [_extraction(item) for item in request.items]
        analyses, plans = self._parser.parse(
            (found.sql for found in extractions if found.sql is not None),
            (gold for item in request.items for gold in _golds(item)),
        )
        cases: list[Case | None] = [
            (found.sql, _golds(item), item.order_matters)
            if found.sql is not None and analyses[found.sql].runnable
            else None
            for item, found in zip(request.items, extractions, strict=True)
        ]
        needed = {gold for case in cases if case is not None for gold in case[1]}
        golds = self._run_golds(sandbox, [plans[gold] for gold in sorted(needed)])
        judgements = self._each(
            lambda case: self._judge(sandbox, case, analyses[case[0]], plans, golds),
            (case for case in cases if case is not None),
        )
        verdicts = []
        for item, found, case in zip(request.items, extractions, cases, strict=True):
            if case is None:
                verdicts.append(_verdict_without_running(item, found, analyses))
            else:
                judgement, exec_ms = judgements[case]
                verdicts.append(_verdict(item, case[0], judgement, exec_ms, analyses[case[0]]))
        for verdict in verdicts:
            VERDICTS.labels(verdict.status).inc()
        VERIFY_SECONDS.observe(time.perf_counter() - started)
        return VerifyResponse(verdicts=verdicts)

    def _run_golds(self, sandbox: RunningSandbox, plans: list[GoldPlan]) -> dict[tuple[str, str], Outcome]:
        """Each gold's outcome on each seed, by (SQL as run, seed)."""
        tasks = [(plan, seed) for plan in plans if plan.error is None for seed in sandbox.seeds]
        outcomes = self._each(lambda task: self._run_gold(sandbox, *task), tasks)
        return {(plan.sql, seed): outcome for (plan, seed), outcome in outcomes.items()}

    def _run_gold(self, sandbox: RunningSandbox, plan: GoldPlan, seed: str) -> Outcome:
        key = (sandbox.data_id, seed, plan.sql)
        cached = None if plan.reads_clock else self._gold_results.get(key)
        GOLD_RESULTS.labels("miss" if cached is None else "hit").inc()
        if cached is not None:
            return cached
        outcome = sandbox.run(Role.GOLD, seed, plan.sql, self._limits)
        if not plan.reads_clock and outcome.failure not in NOT_CACHED:
            self._gold_results.put(key, outcome)
        return outcome

    def _run_candidate(self, sandbox: RunningSandbox, seed: str, sql: str, analysis: Analysis) -> Outcome:
        key = (sandbox.data_id, seed, sql)
        cached = None if analysis.reads_clock else self._candidate_results.get(key)
        if cached is not None:
            return cached
        outcome = sandbox.run(Role.CANDIDATE, seed, sql, self._limits)
        if not analysis.reads_clock and outcome.failure not in NOT_CACHED:
            self._candidate_results.put(key, outcome)
        return outcome

    def _judge(
        self,
        sandbox: RunningSandbox,
        case: Case,
        analysis: Analysis,
        plans: dict[str, GoldPlan],
        outcomes: dict[tuple[str, str], Outcome],
    ) -> tuple[Judgement, float | None]:
        sql, golds, order_matters = case
        exec_ms: dict[str, float] = {}

        def run(seed: str) -> Outcome:
            outcome = self._run_candidate(sandbox, seed, sql, analysis)
            exec_ms[seed] = outcome.exec_ms
            return outcome

        results = [_gold_on_seeds(plans[gold], sandbox.seeds, outcomes, order_matters) for gold in golds]
        judgement = judge(sandbox.seeds, results, run)
        return judgement, exec_ms.get(MAIN_SEED)

    def execute(self, sandbox: RunningSandbox, request: ExecuteRequest) -> ExecuteResponse:
        """Each statement on every seed, nothing cached."""
        analyses, _ = self._parser.parse(request.statements, ())
        tasks = [(sql, seed) for sql in request.statements if analyses[sql].runnable for seed in sandbox.seeds]
        executions = self._each(lambda task: self._execute_one(sandbox, task[0], task[1], request.repeat), tasks)
        results = []
        for sql in request.statements:
            analysis = analyses[sql]
            if analysis.runnable:
                results.append(ExecutedStatement(executions=[executions[sql, seed] for seed in sandbox.seeds]))
            else:
                results.append(ExecutedStatement(executions=[], refused=analysis.refused or analysis.syntax_error))
        return ExecuteResponse(results=results)

    def _execute_one(self, sandbox: RunningSandbox, sql: str, seed: str, repeat: int) -> Execution:
        outcomes = [sandbox.run(Role.CANDIDATE, seed, sql, self._limits) for _ in range(repeat)]
        failed = next((outcome for outcome in outcomes if outcome.failure is not None), None)
        if failed is not None:
            error = f"{failed.failure}: {failed.reason}"
            return Execution(seed=seed, rows=None, columns=[], signature="", stable=False, all_null=False, error=error)
        signatures = {signature(outcome.rows) for outcome in outcomes}
        first = outcomes[0]
        return Execution(
            seed=seed,
            rows=len(first.rows),
            columns=list(first.columns),
            signature=signature(first.rows),
            stable=len(signatures) == 1,
            all_null=all_null(first.rows),
            error=None,
        )

    def explain(self, sandbox: RunningSandbox, request: ExplainRequest) -> Explanation:
        """Both results on the first seed where they differ (else on main), and the first difference."""
        analyses, plans = self._parser.parse([request.sql], [request.gold])
        analysis, plan = analyses[request.sql], plans[request.gold]
        golds = self._run_golds(sandbox, [plan])
        results = _gold_on_seeds(plan, sandbox.seeds, golds, request.order_matters)
        ran: dict[str, Outcome] = {}

        def run(seed: str) -> Outcome:
            ran[seed] = self._run_candidate(sandbox, seed, request.sql, analysis)
            return ran[seed]

        if analysis.runnable:
            judgement = judge(sandbox.seeds, [results], run)
        else:
            status = Status.REFUSED if analysis.refused else Status.SQL_ERROR
            judgement = Judgement(status, analysis.refused or analysis.syntax_error or "", [])
        seed = judgement.seeds[-1].seed if judgement.seeds and judgement.status is not Status.MATCH else MAIN_SEED
        failed = Outcome(failure=Failure.SQL_ERROR, reason=plan.error or judgement.reason)
        gold, candidate = golds.get((plan.sql, seed), failed), ran.get(seed, failed)
        return Explanation(
            status=judgement.status,
            difference=first_difference(judgement, seed, results[seed], candidate),
            gold=preview(gold, plan.hidden_columns),
            candidate=preview(candidate, 0),
        )


def _golds(item: VerifyItem) -> tuple[str, ...]:
    return (item.gold,) if isinstance(item.gold, str) else tuple(item.gold)


def _extraction(item: VerifyItem) -> Extraction:
    if item.sql is not None:
        return Extraction(item.sql, "given as SQL")
    return extract(item.reply or "", item.finish_reason)


def _gold_on_seeds(
    plan: GoldPlan, seeds: list[str], outcomes: dict[tuple[str, str], Outcome], order_matters: bool | None
) -> dict[str, GoldResult]:
    if plan.error is not None:
        return dict.fromkeys(seeds, GoldResult(None, problem="the gold is not one SELECT that parses"))
    return {seed: gold_result(plan, outcomes[plan.sql, seed], order_matters) for seed in seeds}


def _verdict_without_running(item: VerifyItem, found: Extraction, analyses: dict[str, Analysis]) -> Verdict:
    """No statement, or one that the parser stopped."""
    if found.sql is None:
        status, reason = Status.NO_SQL, found.reason
    elif (refused := analyses[found.sql].refused) is not None:
        status, reason = Status.REFUSED, f"the statement {refused}"
    else:
        status, reason = Status.SQL_ERROR, analyses[found.sql].syntax_error or "syntax error"
    return Verdict(item_id=item.item_id, status=status, reward=reward(status, False), sql=found.sql, reason=reason)


def _verdict(item: VerifyItem, sql: str, judgement: Judgement, exec_ms: float | None, analysis: Analysis) -> Verdict:
    main = next((result for result in judgement.seeds if result.seed == MAIN_SEED), None)
    return Verdict(
        item_id=item.item_id,
        status=judgement.status,
        reward=reward(judgement.status, analysis.reads_table),
        sql=sql,
        reason=judgement.reason,
        rows=main.rows if main else None,
        gold_rows=main.gold_rows if main else None,
        exec_ms=exec_ms,
        seeds=judgement.seeds,
    )
