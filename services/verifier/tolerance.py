"""When two numbers are the same number, decided in Decimal: half cents fail in floats. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation

import numpy as np
from numpy.typing import NDArray

_EXACT = Context(prec=400, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
"""Digits enough to subtract any float8 or numeric that an analyst meets without rounding; no number raises."""

_BILLION = 10**9
_SHORT = Context(prec=16, traps=[Inexact, InvalidOperation])
"""Of digits so few that billionths stay below 2^63."""


@dataclass(frozen=True)
class Tolerance:
    """`|gold - candidate|` may reach both `absolute` and `relative` times `|gold|`."""

    absolute: Decimal
    relative: Decimal

    def lower(self, gold: Decimal) -> Decimal:
        """The least number that equals `gold`. Grows with `gold`, as `upper` does: sorting relies on it."""
        # A number longer than the context would be rounded away from itself.
        return min(gold, _EXACT.subtract(gold, self._reach(gold)))

    def upper(self, gold: Decimal) -> Decimal:
        """The greatest number that equals `gold`."""
        return max(gold, _EXACT.add(gold, self._reach(gold)))

    def _reach(self, gold: Decimal) -> Decimal:
        return min(self.absolute, _EXACT.multiply(self.relative, gold.copy_abs()))

    def close(self, gold: Decimal, candidate: Decimal) -> bool:
        """Whether `candidate` equals `gold`."""
        return self.lower(gold) <= candidate <= self.upper(gold)

    def float_bounds(self, gold: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`lower` and `upper` of ascending numbers, but for float rounding; ascending as well."""
        reach = np.minimum(float(self.absolute), float(self.relative) * np.abs(gold))
        return np.maximum.accumulate(gold - reach), np.maximum.accumulate(gold + reach)

    def billionths(self, numbers: Iterable[Decimal]) -> NDArray[np.int64] | None:
        """Exactly the numbers, for `billionth_bounds`; None when one has too many digits, as money never has."""
        last_place = Decimal(self._relative_unit) / _BILLION
        try:
            return np.array([int(_SHORT.quantize(number, last_place) * _BILLION) for number in numbers], np.int64)
        except (Inexact, InvalidOperation):
            return None

    def billionth_bounds(self, gold: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """`lower` and `upper`, exactly."""
        absolute = int(min(self.absolute, Decimal(_BILLION)) * _BILLION)
        reach = np.minimum(absolute, np.abs(gold) // self._relative_unit * int(self.relative * self._relative_unit))
        return gold - reach, gold + reach

    @property
    def _relative_unit(self) -> int:
        """The power of ten of which `relative` is a whole number of parts."""
        return int(Decimal(1).scaleb(-int(self.relative.as_tuple().exponent)))


HALF_CENT = Tolerance(absolute=Decimal("0.005"), relative=Decimal("0.05"))
"""Answers rounded to two decimals match unrounded golds; small ratios stay apart (0.004 is neither 0 nor 0.009)."""

FLOAT_NOISE = Tolerance(absolute=Decimal(math.inf), relative=Decimal("1e-6"))
"""What another order of summation does to a float8 (and float4's own precision)."""

EXACT = Tolerance(absolute=Decimal(0), relative=Decimal(0))
"""Equal by value: 1.5 is 1.50."""
