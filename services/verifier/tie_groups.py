"""Which of a gold's rows tie, so that they may come in any order among themselves. Pure."""

from collections.abc import Sequence

from services.verifier.execution import Outcome
from services.verifier.gold_plan import GoldPlan, SortKey
from services.verifier.values import decode_rows, exact_text


def tie_groups(plan: GoldPlan, outcome: Outcome) -> list[int]:
    """For each of the gold's rows its tie group: rows next to each other with equal sort keys share one.

    Text keys tie only when they are the same to the character. Without traceable keys every row is a group of its own.
    """
    if not outcome.texts:  # and no columns to look up
        return []
    indices = _indices(outcome.columns, plan.sort_keys)
    if indices is None:
        return list(range(len(outcome.texts)))
    texts = [tuple(row[index] for index in indices) for row in outcome.texts]
    keys = decode_rows(texts, [outcome.oids[index] for index in indices], exact_text)
    groups: list[int] = []
    for row, key in enumerate(keys):
        groups.append(groups[-1] + (key != keys[row - 1]) if groups else 0)
    return groups


def _indices(columns: Sequence[str], sort_keys: tuple[SortKey, ...] | None) -> list[int] | None:
    """Column indices of the keys; None when there are no keys or one names no column here."""
    if not sort_keys:
        return None
    indices = []
    for key in sort_keys:
        if isinstance(key, str):
            if key not in columns:
                return None
            key = columns.index(key)  # Postgres takes two of one name only when they are the same
        if key >= len(columns):
            return None
        indices.append(key)
    return indices
