"""What archetypes compose from: roles of columns, scopes, conditions. One per archetype, with its own dice."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from random import Random
from typing import TypeVar

from services.author.catalogue import Catalogue, Column, Kind, Table
from services.author.teachers.grammar.labels import Labels
from services.author.teachers.grammar.predicates import Operator, Predicate, is_dated
from services.author.teachers.grammar.scope import JoinedRow, Scope, scopes_of
from services.author.teachers.grammar.styles import Style
from shared.seed_rows import Value

MAXIMUM_ROWS = 50
"""Longer results are rejected by the gates."""
MAXIMUM_CATEGORIES = 12
"""A text column with more values is a name, not a category."""
NUMERIC = (Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT)
NOT_ADDITIVE = ("price", "rating", "percent", "rate", "year", "age", "lead", "weight", "height", "salary")
"""Measures whose sum means nothing to a person, by a part of their names."""
NOT_ADDITIVE_WORDS = (
    *("open", "high", "low", "close", "density", "score", "altitude", "elevation", "latitude", "longitude", "index"),
    *("temperature", "ratio", "percentage", "rank", "level", "limit", "average"),
)
"""The same by whole words."""
NO_MEASURES = ("id", "code", "zip", "phone", "fax", "epoch", "year")
"""Numbers one does not compute with, by a word of their names."""

SMALL = 3
"""Fractions up to so much are compared with tenths, larger numbers with whole ones."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Draft:
    """One gold and how to ask for it in a style (the words that go into `Style.ask`)."""

    sql: str
    say: Callable[[Style], str]
    ordered: bool = False
    """Whether the gold sorts its result, and `say` says so."""


class Roles:
    """What each column is good for, from its type, keys and values."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.values: dict[Column, tuple[Value, ...]] = {}
        """Distinct non-NULL values, ascending; empty for columns that hold none."""
        self._repeats: dict[Column, bool] = {}
        for table in catalogue.tables.values():
            for column in table.columns:
                counts = Counter(row.get(column.name) for row in table.rows)
                counts.pop(None, None)
                self.values[column] = tuple(sorted(counts, key=lambda value: (str(type(value)), value)))
                self._repeats[column] = sum(counts.values()) >= 2 * len(counts)

    def is_measure(self, column: Column) -> bool:
        """A number one computes with."""
        is_number = column.kind in NUMERIC and not self._catalogue.is_key(column) and bool(self.values[column])
        return is_number and not any(word in NO_MEASURES for word in column.words)

    def is_additive(self, column: Column) -> bool:
        """Whether a sum of the number means something."""
        named = any(part in column.name for part in NOT_ADDITIVE)
        return not named and not any(word in NOT_ADDITIVE_WORDS for word in column.words)

    def is_year(self, column: Column) -> bool:
        """A year kept as a number: compared and grouped by, never averaged."""
        return column.kind is Kind.INTEGER and "year" in column.words and not self._catalogue.is_key(column)

    def is_category(self, column: Column) -> bool:
        """A text with few values that repeat."""
        few = 2 <= len(self.values[column]) <= MAXIMUM_CATEGORIES
        return column.kind is Kind.TEXT and few and self._repeats[column] and not self._catalogue.is_key(column)

    def is_name(self, column: Column) -> bool:
        """A text that tells rows apart."""
        return column.kind is Kind.TEXT and not self.is_category(column) and not column.nullable

    def is_shown(self, column: Column) -> bool:
        """Worth listing: anything but keys to other tables, flags and exotic types."""
        is_own_key = column.name in self._catalogue.tables[column.table].primary_key
        plain = column.kind not in (Kind.OTHER, Kind.BOOLEAN) and bool(self.values[column])
        return plain and (is_own_key or not self._catalogue.is_key(column))


class Material:
    """The catalogue seen by one archetype."""

    def __init__(self, catalogue: Catalogue, roles: Roles, labels: Labels, random: Random) -> None:
        self.catalogue = catalogue
        self.roles = roles
        self.labels = labels
        self.random = random
        self._scopes = {joins: list(scopes_of(catalogue, joins)) for joins in range(3)}

    def chance(self, share: float) -> bool:
        """True in that share of calls."""
        return self.random.random() < share

    def pick(self, items: Sequence[Item]) -> Item | None:
        """One of them; None when there is none."""
        return self.random.choice(items) if items else None

    def scope(self, *joins: int) -> Scope | None:
        """A scope with one of these numbers of joins."""
        return self.pick([scope for number in joins for scope in self._scopes[number]])

    def label(self, scope: Scope, column: Column) -> str:
        """What the column is called where `scope` is spoken of."""
        if column.table == scope.base.name:
            return self.labels.own(column)
        key = next(key for key in scope.joins if key.references == column.table)  # whose columns a scope has, it joins
        rivals = [k for k in self.catalogue.foreign_keys if (k.table, k.references) == (key.table, key.references)]
        return self.labels.full(column) if len(rivals) == 1 else self.labels.by_role(key, column)

    def measure(self, columns: Sequence[Column], nullable: bool = True) -> Column | None:
        """A number to compute with."""
        return self.pick([c for c in columns if self.roles.is_measure(c) and (nullable or not c.nullable)])

    def date(self, columns: Sequence[Column]) -> Column | None:
        """A date that is never NULL."""
        return self.pick([c for c in columns if is_dated(c) and not c.nullable and self.roles.values[c]])

    def group(self, scope: Scope) -> Column | None:
        """A column to group by: a category, a unique name of a joined table, or a coarse number; never NULL."""
        return self.pick([column for column in scope.columns if not column.nullable and self._is_group(scope, column)])

    def _is_group(self, scope: Scope, column: Column) -> bool:
        if column.table != scope.base.name and self.roles.is_name(column) and column.unique:
            return len(self.roles.values[column]) <= MAXIMUM_ROWS
        coarse = column.kind is Kind.INTEGER and len(self.roles.values[column]) <= 6
        return self.roles.is_category(column) or (
            coarse and (self.roles.is_measure(column) or self.roles.is_year(column))
        )

    def shown(self, table: Table, number: int) -> list[Column]:
        """Columns to list: the table's name or key first, then others."""
        candidates = [column for column in table.columns if self.roles.is_shown(column)]
        identities = [c for c in candidates if self.roles.is_name(c) or c == table.key]
        first = self.pick(identities or candidates)
        if first is None:
            return []
        rest = [column for column in candidates if column != first and column != table.key]
        return [first, *self.random.sample(rest, min(number - 1, len(rest)))]

    def predicate(self, scope: Scope, columns: Sequence[Column]) -> Predicate | None:
        """A condition on one of the columns, with values that occur."""
        column = self.pick([c for c in columns if self._operators(c)])
        if column is None:
            return None
        operator = self.random.choice(self._operators(column))
        values = self.roles.values[column]
        if operator in (Operator.TRUE, Operator.FALSE, Operator.MISSING, Operator.PRESENT):
            return Predicate(column, operator)
        if operator is Operator.EITHER:
            pair = sorted(self.random.sample(range(len(values)), 2))
            return Predicate(column, operator, (values[pair[0]], values[pair[1]]))
        if operator is Operator.BETWEEN:
            ends = sorted({self._threshold(values), self._threshold(values)})
            return Predicate(column, operator, tuple(ends)) if len(ends) == 2 else None
        value = self.random.choice(values)
        if operator is Operator.YEAR:
            return Predicate(column, operator, (int(str(value)[:4]),))
        if operator in (Operator.SINCE, Operator.BEFORE):
            return Predicate(column, operator, (str(value)[:7] + "-01",))
        return Predicate(column, operator, (value if operator is Operator.EQUAL else self._threshold(values),))

    def _operators(self, column: Column) -> list[Operator]:
        found: list[Operator] = []
        if not self.roles.values[column]:
            return found
        if column.nullable:
            found += [Operator.MISSING, Operator.PRESENT]
        if self.roles.is_category(column):
            found += [Operator.EQUAL] * 4 + [Operator.EITHER]
        elif self.roles.is_measure(column) or self.roles.is_year(column):
            found += [Operator.GREATER, Operator.LESS] * 2 + [Operator.AT_LEAST, Operator.AT_MOST, Operator.BETWEEN]
            if column.kind is Kind.INTEGER and len(self.roles.values[column]) <= MAXIMUM_CATEGORIES:
                found += [Operator.EQUAL] * 3
        elif is_dated(column):
            found += [Operator.SINCE, Operator.BEFORE, Operator.YEAR] * 2
        elif column.kind is Kind.BOOLEAN:
            found += [Operator.TRUE, Operator.FALSE] * 2
        return found

    def _threshold(self, values: Sequence[Value]) -> int | Decimal:
        """A round number between the smallest and the largest value."""
        low, high = len(values) // 10, max(len(values) * 9 // 10, len(values) // 10 + 1)
        value = Decimal(str(values[self.random.randrange(low, high)]))
        if abs(Decimal(str(values[-1]))) < SMALL and not all(isinstance(one, int) for one in values):
            return value.quantize(Decimal("0.1"), ROUND_HALF_EVEN)
        digits = max(len(str(int(abs(value)))) - 2, 0)
        return round(int(value), -digits)

    def conditions(
        self,
        scope: Scope,
        number: int,
        columns: Sequence[Column] | None = None,
        minimum: int = 1,
        maximum: int = MAXIMUM_ROWS,
        excluded: Sequence[Column] = (),
    ) -> list[Predicate] | None:
        """`number` conditions on different columns that leave `minimum` to `maximum` rows of the scope."""
        for _ in range(12):
            found: list[Predicate] = []
            for _ in range(number):
                used = {predicate.column for predicate in found} | set(excluded)
                predicate = self.predicate(scope, [c for c in columns or scope.columns if c not in used])
                if predicate is None:
                    break
                found.append(predicate)
            if len(found) == number and minimum <= len(satisfying(scope, found)) <= maximum and selective(scope, found):
                return found
        return None

    def used(self, conditions: Sequence[Predicate], *columns: Column) -> list[Column]:
        """The columns and those of the conditions."""
        return [*columns, *(predicate.column for predicate in conditions)]

    def where(self, scope: Scope, conditions: Sequence[Predicate]) -> str:
        """` WHERE …`, or nothing."""
        return " WHERE " + self.all_of(scope, conditions) if conditions else ""

    def all_of(self, scope: Scope, conditions: Sequence[Predicate]) -> str:
        """The conditions joined by AND."""
        return " AND ".join(predicate.sql(scope.reference(predicate.column)) for predicate in conditions)

    def phrases(self, scope: Scope, conditions: Sequence[Predicate], style: Style) -> str:
        """` with price over 20 and ordered in 2023`, or nothing."""
        found = [
            predicate.phrase(
                style,
                self.label(scope, predicate.column),
                self.labels.participle(predicate.column) if predicate.column.table == scope.base.name else None,
            )
            for predicate in conditions
        ]
        return " " + " and ".join(found) if found else ""

    def each(self, scope: Scope, shown: Sequence[Column], entities: str) -> str:
        """The rows whose columns are listed: `customers`, or `each of the customers` where no column tells them apart.

        "The country of customers" may as well mean each country once.
        """
        is_told = any(column.table == scope.base.name and column.unique for column in shown)
        return entities if is_told else f"each of the {entities}"

    def among(self, scope: Scope, conditions: Sequence[Predicate], style: Style) -> str:
        """`, among products with stock over 20`, or nothing: the rows that something is chosen from."""
        entities = self.labels.table(scope.base.name)
        return f", among {entities}{self.phrases(scope, conditions, style)}" if conditions else ""


def selective(scope: Scope, conditions: Sequence[Predicate]) -> bool:
    """Whether each condition leaves some row out: one that never does asks nothing."""
    return all(any(not predicate.holds(row[predicate.column]) for row in scope.rows) for predicate in conditions)


def satisfying(scope: Scope, conditions: Sequence[Predicate]) -> list[JoinedRow]:
    """The scope's rows that meet every condition."""
    return [row for row in scope.rows if all(predicate.holds(row[predicate.column]) for predicate in conditions)]
