"""From outcomes to a verdict: the design's section 4 under the rules of a profile, pure.

One candidate meets one gold or several acceptable ones on every seed. It must equal one gold on each seed where that
gold is non-empty. A failure of our own is `unscorable`, never a zero.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.verifier.comparison import Comparison, Difference, Table
from services.verifier.execution import Failure, Outcome
from services.verifier.gold_plan import GoldPlan
from services.verifier.profiles import Rules
from services.verifier.profiles.base import TieGroups
from services.verifier.sandbox.protocol import MAIN_SEED
from shared.contracts.verifier import SeedResult, Status


@dataclass(frozen=True)
class Judgement:
    """What one candidate is worth against its gold(s)."""

    status: Status
    reason: str
    seeds: list[SeedResult]
    gold: int = 0
    """Index of the gold that this speaks of: the one that matched, or the closest."""
    difference: Difference = Difference.NONE
    """On the last of `seeds`."""
    sqlstate: str | None = None
    """Of a statement that Postgres refused on the main seed."""


@dataclass(frozen=True)
class GoldResult:
    """A gold on one seed: the visible result and its tie groups, or why it cannot be compared with."""

    table: Table | None
    groups: TieGroups | None = None
    problem: str = ""
    infrastructure: bool = False
    faulty: bool = False
    """Postgres refuses the gold, or it returns too much: it will again."""


def gold_result(rules: Rules, plan: GoldPlan, outcome: Outcome, order_matters: bool | None) -> GoldResult:
    """Hidden sort keys cut off; tie groups where order matters. An empty gold is a table without rows."""
    if outcome.failure is not None:
        infrastructure = outcome.failure is Failure.INFRASTRUCTURE
        faulty = outcome.failure in (Failure.SQL_ERROR, Failure.OVERSIZED)
        return GoldResult(None, problem=_gold_problem(outcome), infrastructure=infrastructure, faulty=faulty)
    table = rules.table(outcome).without_last_columns(plan.hidden_columns)
    return GoldResult(table, rules.tie_groups(plan, outcome, order_matters))


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
    rules: Rules,
    seeds: Sequence[str],
    golds: Sequence[Mapping[str, GoldResult]],
    run: Callable[[str], Outcome],
) -> Judgement:
    """Compare a candidate with each acceptable gold. `run` gives the candidate's outcome on a seed, when asked."""
    counted = seeds if rules.on_variants else seeds[:1]
    judgements = []
    for index, gold in enumerate(golds):
        if _usable(rules, gold[MAIN_SEED]):
            judgement = _judge_one(rules, counted, index, gold, run)
            if judgement.status is Status.MATCH:
                return judgement
            judgements.append(judgement)
    # A gold that our own failure kept from being compared might have matched.
    lost = next((gold[MAIN_SEED] for gold in golds if gold[MAIN_SEED].infrastructure), None)
    if lost is not None or not judgements:
        return Judgement(Status.UNSCORABLE, _why_unusable(lost or golds[0][MAIN_SEED]), [])
    unscorable = (judgement for judgement in judgements if judgement.status is Status.UNSCORABLE)
    return next(unscorable, max(judgements, key=_nearness))


def _usable(rules: Rules, gold: GoldResult) -> bool:
    return gold.table is not None and (rules.takes_empty_gold or len(gold.table.rows) > 0)


def _why_unusable(gold: GoldResult) -> str:
    return "the gold returns no row on the main seed" if gold.table is not None else gold.problem


def _nearness(judgement: Judgement) -> tuple[int, int, int]:
    """The gold that a candidate came furthest with tells most: by seeds, by kind of difference, by rows."""
    last = judgement.seeds[-1]
    rows_apart = abs((last.rows or 0) - (last.gold_rows or 0))
    return len(judgement.seeds), -judgement.difference, -rows_apart


def _judge_one(
    rules: Rules,
    seeds: Sequence[str],
    index: int,
    gold: Mapping[str, GoldResult],
    run: Callable[[str], Outcome],
) -> Judgement:
    results: list[SeedResult] = []
    for seed in seeds:
        expected = gold[seed]
        if expected.faulty and seed != MAIN_SEED:
            continue  # e.g. it divides by zero on a variant made after it was written: nothing to compare with there
        if expected.table is None:
            results.append(SeedResult(seed=seed, status=Status.UNSCORABLE))
            return Judgement(Status.UNSCORABLE, f"seed {seed}: {expected.problem}", results, index)
        if not _usable(rules, expected):
            continue
        outcome = run(seed)
        status, difference, reason = _status(rules, expected.table, expected.groups, outcome)
        rows = len(outcome.texts) if outcome.failure is None else None
        results.append(SeedResult(seed=seed, status=status, rows=rows, gold_rows=len(expected.table.rows)))
        if status is not Status.MATCH:
            if seed != MAIN_SEED:
                # It answers on the main seed, so failing on another one is being wrong there, not failing to run.
                status = Status.MISMATCH if status is Status.SQL_ERROR else status
                reason = f"right on the main seed, not on seed {seed}: {reason}"
            sqlstate = outcome.sqlstate if status is Status.SQL_ERROR else None
            return Judgement(status, reason, results, index, difference, sqlstate)
    return Judgement(Status.MATCH, f"same result as the gold on {len(results)} seed(s)", results, index)


def _status(rules: Rules, gold: Table, groups: TieGroups | None, outcome: Outcome) -> tuple[Status, Difference, str]:
    match outcome.failure:
        case Failure.SQL_ERROR:
            return Status.SQL_ERROR, Difference.ROW_COUNT, outcome.reason
        case Failure.TIMEOUT:
            return Status.TIMEOUT, Difference.ROW_COUNT, outcome.reason
        case Failure.OVERSIZED:
            return Status.MISMATCH, Difference.ROW_COUNT, f"returns {outcome.reason}"
        case Failure.INFRASTRUCTURE:
            return Status.UNSCORABLE, Difference.NONE, outcome.reason
        case None:
            comparison: Comparison = rules.compare(gold, rules.table(outcome), groups)
            status = Status.MATCH if comparison.equal else Status.MISMATCH
            return status, comparison.difference, comparison.reason
