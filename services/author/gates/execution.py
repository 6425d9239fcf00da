"""What the runs of a gold show. Pure."""

from collections.abc import Sequence

from services.author.gates.reasons import Reason
from shared.contracts.verifier import ExecutedStatement, Execution

MAXIMUM_ROWS = 50
"""A person can read a result of this size, and a chance match of one is unlikely."""

_FAILURES = {"timeout": Reason.TIMEOUT, "oversized": Reason.TOO_MANY_ROWS}


def infrastructure_failure(executed: ExecutedStatement) -> str | None:
    """What broke under the statement; no verdict on it can be had then."""
    errors = (run.error for run in executed.executions if run.error is not None)
    return next((error for error in errors if error.startswith("infrastructure")), None)


def execution_gate(gold: ExecutedStatement, probe: ExecutedStatement | None) -> Reason | None:
    """Runs on every seed, the same twice; 1 to 50 rows on the main one, some on a variant; no tie cut (`tie_probe`)."""
    if gold.refused is not None:
        return Reason.REFUSED
    for run in gold.executions:
        if run.error is not None:
            return _FAILURES.get(run.error.split(":")[0], Reason.ERROR)
    if not all(run.stable for run in gold.executions):
        return Reason.UNSTABLE
    main, *variants = gold.executions
    if main.rows == 0:
        return Reason.EMPTY
    if (main.rows or 0) > MAXIMUM_ROWS:
        return Reason.TOO_MANY_ROWS
    if main.all_null:
        return Reason.ALL_NULL
    if variants and not any(run.rows for run in variants):
        return Reason.EMPTY_VARIANTS
    if probe is not None and not _same_rows(probe.executions, gold.executions):
        return Reason.TIE_CUT
    return None


def reversal_gate(gold: ExecutedStatement, reversed_rows: ExecutedStatement) -> Reason | None:
    """The same rows when the tables' rows lie in the opposite order: what ties or order decide comes out differently.

    `reversed_rows`: the gold on seeds that hold equal rows, physically reversed.
    """
    return None if _same_rows(gold.executions, reversed_rows.executions) else Reason.ORDER_DEPENDENT


def _same_rows(ones: Sequence[Execution], others: Sequence[Execution]) -> bool:
    return [(run.seed, run.signature) for run in ones] == [(run.seed, run.signature) for run in others]
