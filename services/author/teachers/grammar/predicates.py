"""Conditions on one column: how they read in SQL and in each style, and which values satisfy them."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from services.author.catalogue import Column, Kind
from services.author.teachers.grammar.styles import Style
from shared.seed_rows import Value


class Operator(StrEnum):
    """The conditions the teacher knows."""

    EQUAL = "equal"
    EITHER = "either"
    GREATER = "greater"
    LESS = "less"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    BETWEEN = "between"
    MISSING = "missing"
    PRESENT = "present"
    TRUE = "true"
    FALSE = "false"
    SINCE = "since"
    BEFORE = "before"
    YEAR = "year"


_SQL = {
    Operator.EQUAL: "{c} = {v}",
    Operator.EITHER: "{c} IN ({v}, {w})",
    Operator.GREATER: "{c} > {v}",
    Operator.LESS: "{c} < {v}",
    Operator.AT_LEAST: "{c} >= {v}",
    Operator.AT_MOST: "{c} <= {v}",
    Operator.BETWEEN: "{c} BETWEEN {v} AND {w}",
    Operator.MISSING: "{c} IS NULL",
    Operator.PRESENT: "{c} IS NOT NULL",
    Operator.TRUE: "{c}",
    Operator.FALSE: "NOT {c}",
    Operator.SINCE: "{c} >= {v}",
    Operator.BEFORE: "{c} < {v}",
    Operator.YEAR: "extract(year FROM {c}) = {v}",
}

_HOLDS: dict[Operator, Callable[[Any, Any, Any], bool]] = {
    Operator.EQUAL: lambda x, v, w: x == v,
    Operator.EITHER: lambda x, v, w: x in (v, w),
    Operator.GREATER: lambda x, v, w: x > v,
    Operator.LESS: lambda x, v, w: x < v,
    Operator.AT_LEAST: lambda x, v, w: x >= v,
    Operator.AT_MOST: lambda x, v, w: x <= v,
    Operator.BETWEEN: lambda x, v, w: v <= x <= w,
    Operator.PRESENT: lambda x, v, w: True,
    Operator.TRUE: lambda x, v, w: x is True,
    Operator.FALSE: lambda x, v, w: x is False,
    Operator.SINCE: lambda x, v, w: x >= v,
    Operator.BEFORE: lambda x, v, w: x < v,
    Operator.YEAR: lambda x, v, w: x[:4] == str(v),
}

DATE_OPERATORS = {Operator.SINCE, Operator.BEFORE, Operator.YEAR}


def literal(value: Value) -> str:
    """A value as SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    return "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True)
class Predicate:
    """One condition. `values` holds none, one or two values, as the operator needs."""

    column: Column
    operator: Operator
    values: tuple[Value, ...] = ()

    def sql(self, reference: str) -> str:
        """The condition on a column written as `reference`."""
        first, second = self._pair()
        written = self.column.as_date(reference) if self.operator is Operator.YEAR else reference
        return _SQL[self.operator].format(c=written, v=literal(first), w=literal(second))

    def holds(self, value: Value) -> bool:
        """Whether SQL would call the condition true of this value. Dates compare as ISO text."""
        if value is None or self.operator is Operator.MISSING:
            return value is None and self.operator is Operator.MISSING
        return _HOLDS[self.operator](value, *self._pair())

    def phrase(self, style: Style, label: str, participle: str | None) -> str:
        """The condition in words, to stand after the noun it restricts."""
        first, second = self._pair()
        if self.operator in DATE_OPERATORS:
            lead = participle or style.dated.format(l=label)
            return f"{lead} {getattr(style, self.operator).format(v=first)}"
        if self.operator in (Operator.MISSING, Operator.PRESENT):
            label = label.removesuffix(" id")
        form: str = getattr(style, self.operator)
        return form.format(l=label, v=first, w=second)

    def _pair(self) -> tuple[Value, Value]:
        padded = (*self.values, None, None)
        return padded[0], padded[1]


def is_dated(column: Column) -> bool:
    """Whether the column holds dates or timestamps."""
    return column.kind in (Kind.DATE, Kind.TIMESTAMP)
