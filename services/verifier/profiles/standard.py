"""Profile `standard`: the answer counts, not its form (design section 4).

Columns in any order whatever their names; text without regard to case and outer blanks; numbers within half a cent and
five percent, also inside arrays and JSON; rows in order only where that is asked for.
"""

from typing import Any

from services.verifier.comparison import Table, compare
from services.verifier.execution import Outcome
from services.verifier.extraction import extract
from services.verifier.gold_plan import GoldPlan
from services.verifier.nested import same_but_for_numbers
from services.verifier.profiles.base import Rules, TieGroups, shaped_reward
from services.verifier.tie_groups import tie_groups
from services.verifier.tolerance import HALF_CENT


def _table(outcome: Outcome) -> Table:
    return Table(outcome.columns, outcome.rows)


def _groups(plan: GoldPlan, outcome: Outcome, order_matters: bool | None) -> TieGroups | None:
    ordered = plan.ordered if order_matters is None else order_matters
    return tie_groups(plan, outcome) if ordered else None


def _same_value(gold: Any, candidate: Any, is_float: bool) -> bool:
    del is_float
    return same_but_for_numbers(gold, candidate, HALF_CENT.close)


STANDARD = Rules(
    extract=extract,
    table=_table,
    tie_groups=_groups,
    compare=compare,
    same_value=_same_value,
    columns_in_place=False,
    reward=shaped_reward,
    on_variants=True,
    takes_empty_gold=False,
)
