"""A digest of a result: equal multisets of rows have equal digests. Pure.

Goes as far with profile `standard` as a hash can: text folded, numbers by value; within-tolerance numbers differ.
"""

import hashlib
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

from services.verifier.nested import Value

_TWELVE_DIGITS = Context(prec=12, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
"""Float noise from another summation order stays below."""


def signature(rows: Sequence[tuple[Value, ...]]) -> str:
    """SHA-256 in hex of the rows as a multiset, columns in their order."""
    digest = hashlib.sha256()
    for line in sorted(repr(tuple(_stable(value) for value in row)) for row in rows):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _stable(value: Any) -> Any:
    if isinstance(value, Decimal):
        return ("number", str(_TWELVE_DIGITS.plus(value).normalize(_TWELVE_DIGITS)))
    if isinstance(value, tuple):
        return tuple(_stable(part) for part in value)
    return value


def all_null(rows: Sequence[tuple[Value, ...]]) -> bool:
    """At least one row, and no value in any."""
    return bool(rows) and all(value is None for row in rows for value in row)
