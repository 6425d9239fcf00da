"""Profile `strict`: the gold's table itself, as a program that reads it by position would need it.

Columns in the gold's order (their names stay free: no question says them), text to the character, numbers exactly; a
float column may differ by what another order of summation does (relative 1e-6). The gold's outermost ORDER BY always
counts, also where the item says that order does not matter, but rows that tie on it may swap: SQL promises no order
beyond it, and a verdict must not hang on the plan Postgres chose.
"""

from typing import Any

from services.verifier.comparison import Table, compare_in_place
from services.verifier.execution import Outcome
from services.verifier.extraction import extract
from services.verifier.gold_plan import GoldPlan
from services.verifier.nested import same_but_for_numbers
from services.verifier.profiles.base import Rules, TieGroups, shaped_reward
from services.verifier.tie_groups import tie_groups
from services.verifier.tolerance import EXACT, FLOAT_NOISE
from services.verifier.values import decode_rows, exact_text, is_float


def _table(outcome: Outcome) -> Table:
    floats = frozenset(column for column, oid in enumerate(outcome.oids) if is_float(oid))
    return Table(outcome.columns, decode_rows(outcome.texts, outcome.oids, exact_text), floats)


def _groups(plan: GoldPlan, outcome: Outcome, order_matters: bool | None) -> TieGroups | None:
    return tie_groups(plan, outcome) if plan.ordered or order_matters else None


def _same_value(gold: Any, candidate: Any, is_float: bool) -> bool:
    return same_but_for_numbers(gold, candidate, (FLOAT_NOISE if is_float else EXACT).close)


STRICT = Rules(
    extract=extract,
    table=_table,
    tie_groups=_groups,
    compare=compare_in_place,
    same_value=_same_value,
    columns_in_place=True,
    reward=shaped_reward,
    on_variants=True,
    takes_empty_gold=False,
)
