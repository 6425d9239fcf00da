"""From judgements and outcomes to the contract's answers. Pure."""

from collections.abc import Mapping, Sequence

from services.verifier.execution import Outcome
from services.verifier.extraction import Extraction
from services.verifier.profiles import Rules
from services.verifier.sandbox.protocol import MAIN_SEED
from services.verifier.signature import all_null, signature
from services.verifier.statement import Analysis
from services.verifier.verdicts import Judgement
from shared.contracts.verifier import Execution, Status, Verdict, VerifyItem

SYNTAX_ERROR = "42601"
"""What Postgres answers to a statement that does not parse."""


def verdict_of(
    rules: Rules, item: VerifyItem, sql: str, judgement: Judgement, exec_ms: float | None, analysis: Analysis
) -> Verdict:
    """Of an item whose statement was judged."""
    main = next((result for result in judgement.seeds if result.seed == MAIN_SEED), None)
    return Verdict(
        item_id=item.item_id,
        status=judgement.status,
        reward=rules.reward(judgement.status, analysis.reads_table),
        sql=sql,
        reason=judgement.reason,
        sqlstate=judgement.sqlstate,
        rows=main.rows if main else None,
        gold_rows=main.gold_rows if main else None,
        exec_ms=exec_ms,
        seeds=judgement.seeds,
    )


def verdict_without_running(
    rules: Rules, item: VerifyItem, found: Extraction, analyses: Mapping[str, Analysis]
) -> Verdict:
    """Of an item without a statement, or with one that the parser stopped."""
    if found.sql is None:
        status, reason = Status.NO_SQL, found.reason
    elif (refused := analyses[found.sql].refused) is not None:
        status, reason = Status.REFUSED, f"the statement {refused}"
    else:
        status, reason = Status.SQL_ERROR, analyses[found.sql].syntax_error or "syntax error"
    return Verdict(
        item_id=item.item_id,
        status=status,
        reward=rules.reward(status, False),
        sql=found.sql,
        reason=reason,
        sqlstate=SYNTAX_ERROR if status is Status.SQL_ERROR else None,
    )


def execution_of(seed: str, outcomes: Sequence[Outcome]) -> Execution:
    """Of one statement that ran once or more on a seed."""
    failed = next((outcome for outcome in outcomes if outcome.failure is not None), None)
    if failed is not None:
        error = f"{failed.failure}: {failed.reason}"
        return Execution(seed=seed, rows=None, columns=[], signature="", stable=False, all_null=False, error=error)
    first = outcomes[0]
    signatures = {signature(outcome.rows) for outcome in outcomes}
    return Execution(
        seed=seed,
        rows=len(first.rows),
        columns=list(first.columns),
        signature=signature(first.rows),
        stable=len(signatures) == 1,
        all_null=all_null(first.rows),
        error=None,
    )
