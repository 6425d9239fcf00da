"""Where two results differ first, in words for people. Shows values of the gold: never for models. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from services.verifier.comparison import Difference, Table
from services.verifier.execution import Outcome
from services.verifier.profiles import Rules
from services.verifier.sandbox.protocol import MAIN_SEED
from services.verifier.verdicts import Judgement
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
    return ResultPreview(columns=list(outcome.columns[:visible]), rows=rows, row_count=len(outcome.texts), error=error)


@dataclass(frozen=True)
class Shown:
    """One side: its values as the profile compares them, and as Postgres printed them."""

    table: Table
    texts: Sequence[tuple[str | None, ...]]

    def row(self, index: int) -> str:
        """`row 3 (Ada, NULL)`."""
        cells = ", ".join(map(_cell, self.texts[index][: len(self.table.columns)]))
        return f"row {index + 1} ({cells})"


def _cell(text: str | None) -> str:
    return "NULL" if text is None else text[:PREVIEW_CHARACTERS]


def first_difference(rules: Rules, judgement: Judgement, gold: Shown | None, candidate: Shown | None) -> str:
    """One or two sentences about the seed that the judgement ends with. A side is None when it has no result."""
    if judgement.status is Status.MATCH:
        return "none: the results are equal"
    seed = judgement.seeds[-1].seed if judgement.seeds else MAIN_SEED
    where = "" if seed == MAIN_SEED else f"on seed {seed}: "
    if gold is None or candidate is None or judgement.status is not Status.MISMATCH:
        return judgement.reason
    match judgement.difference:
        case Difference.COLUMN_COUNT:
            return f"{where}{_columns(candidate)} where the gold has {_columns(gold)}"
        case Difference.ROW_COUNT if len(gold.table.columns) != len(candidate.table.columns):
            return f"{where}{_size(candidate)} where the gold has {_size(gold)}"
        case Difference.ROW_COUNT:
            return where + _row_count(_Matching(rules, gold, candidate))
        case Difference.ROW_ORDER:
            return where + _row_order(_Matching(rules, gold, candidate))
        case _:
            return where + (_values(_Matching(rules, gold, candidate)) or judgement.reason)


def _columns(side: Shown) -> str:
    return f"{len(side.table.columns)} columns ({', '.join(side.table.columns)})"


def _size(side: Shown) -> str:
    """A result without rows tells no columns."""
    return f"{len(side.table.rows)} rows of {_columns(side)}" if side.table.rows else "no row"


class _Matching:
    """Which candidate column stands for which of the gold's, and which rows have an equal one; greedy."""

    def __init__(self, rules: Rules, gold: Shown, candidate: Shown) -> None:
        self._rules = rules
        self.gold, self.candidate = gold, candidate
        self.column_of = self._paired_columns()
        left = list(range(len(candidate.table.rows)))
        self.alone: list[int] = []
        """Gold rows without an equal."""
        for index in range(len(gold.table.rows)):
            partner = next((other for other in left if self.same_row(index, other)), None)
            if partner is None:
                self.alone.append(index)
            else:
                left.remove(partner)
        self.surplus = left
        """Candidate rows without an equal."""

    def _paired_columns(self) -> list[int]:
        width = len(self.gold.table.columns)
        if self._rules.columns_in_place:
            return list(range(width))
        mine, theirs = (list(zip(*side.table.rows, strict=True)) for side in (self.gold, self.candidate))
        likeness = {
            (i, j): (self._overlap(mine[i], theirs[j]), self._same_name(i, j), i == j)
            for i in range(width)
            for j in range(width)
        }
        paired: dict[int, int] = {}
        for i, j in sorted(likeness, key=likeness.__getitem__, reverse=True):
            if i not in paired and j not in paired.values():
                paired[i] = j
        return [paired[i] for i in range(width)]

    def _overlap(self, mine: Sequence[Any], theirs: Sequence[Any]) -> int:
        """How many of the values find an equal."""
        left = list(theirs)
        for value in mine:
            partner = next((k for k, other in enumerate(left) if self._rules.same_value(value, other, False)), None)
            if partner is not None:
                del left[partner]
        return len(theirs) - len(left)

    def _same_name(self, i: int, j: int) -> bool:
        return self.gold.table.columns[i] == self.candidate.table.columns[j]

    def differing_columns(self, mine: int, theirs: int) -> list[int]:
        """The gold's columns in which two rows differ."""
        gold, candidate = self.gold.table, self.candidate.table
        return [
            i
            for i, j in enumerate(self.column_of)
            if not self._rules.same_value(
                gold.rows[mine][i],
                candidate.rows[theirs][j],
                i in gold.float_columns or j in candidate.float_columns,
            )
        ]

    def same_row(self, mine: int, theirs: int) -> bool:
        """Whether two rows are equal in every column."""
        return not self.differing_columns(mine, theirs)


def _row_count(matching: _Matching) -> str:
    gold, candidate = matching.gold, matching.candidate
    counts = f"{len(candidate.table.rows)} rows where the gold has {len(gold.table.rows)}"
    if matching.alone:
        return f"{counts}: the gold's {gold.row(matching.alone[0])} has no equal in the candidate"
    return f"{counts}: the candidate's {candidate.row(matching.surplus[0])} has no equal in the gold"


def _row_order(matching: _Matching) -> str:
    gold, candidate = matching.gold, matching.candidate
    for index in range(len(gold.table.rows)):
        if not matching.same_row(index, index):
            place = f"the right rows in another order: where the gold has {gold.row(index)}"
            return f"{place}, the candidate has {candidate.row(index)}"
    return "the right rows in another order than asked for"


def _values(matching: _Matching) -> str | None:
    """None when every row has an equal: then the columns were paired otherwise than the profile would."""
    if not matching.alone:
        return None
    gold, candidate = matching.gold, matching.candidate
    mine = matching.alone[0]
    nearest = min(matching.surplus, key=lambda theirs: len(matching.differing_columns(mine, theirs)))
    columns = matching.differing_columns(mine, nearest)
    if len(gold.table.columns) > 1 and 2 * len(columns) > len(gold.table.columns):
        missing = f"the gold's {gold.row(mine)} has no equal in the candidate"
        return f"{missing}, the candidate's {candidate.row(nearest)} none in the gold"
    i = columns[0]
    j = matching.column_of[i]
    return (
        f"in the gold's {gold.row(mine)} column {gold.table.columns[i]} is {_cell(gold.texts[mine][i])}, in the "
        f"candidate's {candidate.row(nearest)} column {candidate.table.columns[j]} is "
        f"{_cell(candidate.texts[nearest][j])}"
    )
