"""What a comparison profile decides, from the reply to the reward."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.verifier.comparison import Comparison, Table
from services.verifier.execution import Outcome
from services.verifier.extraction import Extraction
from services.verifier.gold_plan import GoldPlan
from shared.contracts.verifier import FinishReason, Status

TieGroups = list[int]
"""For each of the gold's rows, in its order, the number of its tie group, non-decreasing."""


@dataclass(frozen=True)
class Rules:
    """One profile: pure functions, and what of a suite counts."""

    extract: Callable[[str, FinishReason | None], Extraction]
    table: Callable[[Outcome], Table]
    """A result's values as this profile compares them."""
    tie_groups: Callable[[GoldPlan, Outcome, bool | None], TieGroups | None]
    """Given the gold, its result and the item's `order_matters`. None: the rows' order does not matter."""
    compare: Callable[[Table, Table, TieGroups | None], Comparison]
    """Gold first."""
    same_value: Callable[[Any, Any, bool], bool]
    """Gold first, and whether their column holds floats; for showing people where two results differ."""
    columns_in_place: bool
    """Whether a column must stand where the gold has it."""
    reward: Callable[[Status, bool], float | None]
    """By status and whether the statement reads a table; None for `unscorable`."""
    on_variants: bool
    """Whether a match must hold on the bundle's variants too."""
    takes_empty_gold: bool
    """Whether a gold without rows on the main seed can be matched, or makes the item unscorable."""


def shaped_reward(status: Status, reads_table: bool) -> float | None:
    """1.0 for a match, 0.1 for what ran and read a table but is wrong: the slope from errors to answers."""
    if status is Status.UNSCORABLE:
        return None
    if status is Status.MATCH:
        return 1.0
    return 0.1 if status is Status.MISMATCH and reads_table else 0.0
