"""From outcomes to a verdict and its reward: the design's section 4, pure.

One candidate meets one gold or several acceptable ones on every seed. It must equal one gold on each seed where that
gold is non-empty. A failure of our own is `unscorable`, never a zero.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.verifier.comparison import Comparison, Table, compare
from services.verifier.execution import Failure, Outcome
from services.verifier.gold_plan import GoldPlan, tie_groups
from services.verifier.sandbox.protocol import MAIN_SEED
from shared.contracts.verifier import SeedResult, Status

REWARD_MATCH = 1.0
REWARD_RAN = 0.1
"""Ran, read at least one table, wrong: the slope from errors to answers."""
REWARD_NONE = 0.0


@dataclass(frozen=True)
class Judgement:
    """What one candidate is worth against its gold(s)."""

    status: Status
    reason: str
    seeds: list[SeedResult]


@dataclass(frozen=True)
class GoldResult:
    """A gold on one seed: the visible result and its tie groups, or why it cannot be compared with."""

    table: Table | None
    groups: list[int] | None = None
    problem: str = ""
    infrastructure: bool = False


def reward(status: Status, reads_table: bool) -> float | None:
    """By status; None for `unscorable`."""
    if status is Status.UNSCORABLE:
        return None
    if status is Status.MATCH:
        return REWARD_MATCH
    return REWARD_RAN if status is Status.MISMATCH and reads_table else REWARD_NONE


def gold_result(plan: GoldPlan, outcome: Outcome, order_matters: bool | None) -> GoldResult:
    """Hidden sort keys cut off; tie groups where order matters. An empty gold is a table without rows."""
    if outcome.failure is not None:
        infrastructure = outcome.failure is Failure.INFRASTRUCTURE
        return GoldResult(None, problem=_gold_problem(outcome), infrastructure=infrastructure)
    ordered = plan.ordered if order_matters is None else order_matters
    groups = tie_groups(outcome.columns, outcome.rows, plan.sort_keys) if ordered else None
    visible = len(outcome.columns) - plan.hidden_columns
    rows = [row[:visible] for row in outcome.rows] if plan.hidden_columns else outcome.rows
    return GoldResult(Table(outcome.columns[:visible], rows), groups)


def _gold_problem(outcome: Outcome) -> str:
    match outcome.failure:
        case Failure.OVERSIZED:
            return f"the gold returns {outcome.reason}"
        case Failure.TIMEOUT:
            return "the gold did not finish in time"
        case Failure.INFRASTRUCTURE:
            return outcome.reason
        case _:
            return "the gold fails on this database"  # its error text would quote it


def judge(
    seeds: Sequence[str],
    golds: Sequence[Mapping[str, GoldResult]],
    run: Callable[[str], Outcome],
) -> Judgement:
    """Compare a candidate with each acceptable gold. `run` gives the candidate's outcome on a seed, when asked."""
    usable = [gold for gold in golds if _usable(gold[MAIN_SEED])]
    if not usable:
        return Judgement(Status.UNSCORABLE, _why_unusable(golds[0][MAIN_SEED]), [])
    judgements = []
    for gold in usable:
        judgement = _judge_one(seeds, gold, run)
        if judgement.status is Status.MATCH:
            return judgement
        judgements.append(judgement)
    unscorable = (judgement for judgement in judgements if judgement.status is Status.UNSCORABLE)
    # The gold that the candidate came furthest with tells most.
    return next(unscorable, max(judgements, key=lambda judgement: len(judgement.seeds)))


def _usable(gold: GoldResult) -> bool:
    return gold.table is not None and len(gold.table.rows) > 0


def _why_unusable(gold: GoldResult) -> str:
    return "the gold returns no row on the main seed" if gold.table is not None else gold.problem


def _judge_one(seeds: Sequence[str], gold: Mapping[str, GoldResult], run: Callable[[str], Outcome]) -> Judgement:
    results: list[SeedResult] = []
    for seed in seeds:
        expected = gold[seed]
        if expected.table is None:
            results.append(SeedResult(seed=seed, status=Status.UNSCORABLE))
            return Judgement(Status.UNSCORABLE, f"seed {seed}: {expected.problem}", results)
        if not expected.table.rows:
            continue
        outcome = run(seed)
        status, reason = _status(expected.table, expected.groups, outcome)
        rows = len(outcome.rows) if outcome.failure is None else None
        results.append(SeedResult(seed=seed, status=status, rows=rows, gold_rows=len(expected.table.rows)))
        if status is not Status.MATCH:
            if seed == MAIN_SEED:
                return Judgement(status, reason, results)
            # It answers on the main seed, so failing on another one is being wrong there, not failing to run.
            overall = Status.MISMATCH if status is Status.SQL_ERROR else status
            return Judgement(overall, f"right on the main seed, not on seed {seed}: {reason}", results)
    return Judgement(Status.MATCH, f"same result as the gold on {len(results)} seed(s)", results)


def _status(gold: Table, groups: list[int] | None, outcome: Outcome) -> tuple[Status, str]:
    match outcome.failure:
        case Failure.SQL_ERROR:
            return Status.SQL_ERROR, outcome.reason
        case Failure.TIMEOUT:
            return Status.TIMEOUT, outcome.reason
        case Failure.OVERSIZED:
            return Status.MISMATCH, f"returns {outcome.reason}"
        case Failure.INFRASTRUCTURE:
            return Status.UNSCORABLE, outcome.reason
        case None:
            comparison: Comparison = compare(gold, Table(outcome.columns, outcome.rows), groups)
            return Status.MATCH if comparison.equal else Status.MISMATCH, comparison.reason
