"""When two numbers are the same number: the rule of profile `standard`, in Decimal: half cents fail in floats. Pure."""

from decimal import Context, Decimal

ABSOLUTE = Decimal("0.005")
"""Half a cent: answers rounded to two decimals match unrounded golds."""

RELATIVE = Decimal("0.05")
"""Of the gold: keeps small ratios apart (0.004 is neither 0 nor 0.009)."""

_EXACT = Context(prec=400)
"""Digits enough to subtract any float8 or numeric that an analyst meets without rounding."""


def bounds(gold: Decimal) -> tuple[Decimal, Decimal]:
    """The closed interval of numbers that equal `gold`. Both ends grow with `gold`: sorted matching relies on it."""
    reach = min(ABSOLUTE, _EXACT.multiply(RELATIVE, gold.copy_abs()))
    # A number longer than the context would be rounded away from itself.
    return min(gold, _EXACT.subtract(gold, reach)), max(gold, _EXACT.add(gold, reach))


def close(gold: Decimal, candidate: Decimal) -> bool:
    """`|a-b| <= 0.005 and |a-b| <= 0.05*|gold|`, or equality."""
    low, high = bounds(gold)
    return low <= candidate <= high
