"""The first difference between two results, in words for people. Shows values of the gold: never for models. Pure."""

from collections import Counter

from services.verifier.execution import Outcome
from services.verifier.sandbox.protocol import MAIN_SEED
from services.verifier.verdicts import GoldResult, Judgement
from shared.contracts.verifier import ResultPreview, Status

PREVIEW_ROWS = 10
PREVIEW_CHARACTERS = 200
"""Of one value."""


def preview(outcome: Outcome, hidden_columns: int) -> ResultPreview:
    """Columns and first rows as text; `hidden_columns` at the end are left out."""
    visible = len(outcome.columns) - hidden_columns
    rows = [
        [None if value is None else value[:PREVIEW_CHARACTERS] for value in row[:visible]]
        for row in outcome.texts[:PREVIEW_ROWS]
    ]
    error = None if outcome.failure is None else f"{outcome.failure}: {outcome.reason}"
    return ResultPreview(columns=list(outcome.columns[:visible]), rows=rows, row_count=len(outcome.rows), error=error)


def first_difference(judgement: Judgement, seed: str, gold: GoldResult, candidate: Outcome) -> str:
    """One sentence."""
    where = "" if seed == MAIN_SEED else f"on seed {seed}: "
    if judgement.status is Status.MATCH:
        return "none: the results are equal"
    if judgement.status is not Status.MISMATCH or gold.table is None or candidate.failure is not None:
        return judgement.reason
    if len(gold.table.rows) != len(candidate.rows) or len(gold.table.columns) != len(candidate.columns):
        return judgement.reason
    # Rows in the candidate's column order; a permuted answer still shows a row that has no equal.
    missing = Counter(map(_unordered, gold.table.rows)) - Counter(map(_unordered, candidate.rows))
    for index, row in enumerate(gold.table.rows):
        if _unordered(row) in missing:
            return f"{where}gold row {index + 1} {_shown(row)} has no equal in the candidate ({judgement.reason})"
    return judgement.reason


def _unordered(row: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(sorted(map(repr, row)))


def _shown(row: tuple[object, ...]) -> str:
    cells = ["NULL" if value is None else str(value[1] if isinstance(value, tuple) else value) for value in row]
    return "(" + ", ".join(cell[:PREVIEW_CHARACTERS] for cell in cells) + ")"
