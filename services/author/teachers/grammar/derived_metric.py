"""Figures that are no column: revenue, margins, shares, averages per thing, days between dates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.author.catalogue import Column, Kind
from services.author.teachers.grammar import aggregates
from services.author.teachers.grammar.labels import listing
from services.author.teachers.grammar.material import MAXIMUM_ROWS, Draft, Material
from services.author.teachers.grammar.predicates import Operator
from services.author.teachers.grammar.scope import Scope
from services.author.teachers.grammar.styles import Style


@dataclass(frozen=True)
class Figure:
    """An expression over rows. `say` gives it without the rows it is taken over."""

    sql: str
    say: Callable[[Style], str]
    within: bool = False
    """A share or rate of each group's own rows: `by country` could also mean its spread over the groups."""


def _row_expression(material: Material, scope: Scope) -> Figure | None:
    """A number computed from two columns of one row: a product, a difference, days between dates."""
    columns = scope.base.columns
    measures = [column for column in columns if material.roles.is_measure(column)]
    whole = [c for c in measures if c.kind is Kind.INTEGER and not c.nullable]
    money = [c for c in measures if c.kind is Kind.DECIMAL and not c.nullable]
    dates = [column for column in columns if column.kind is Kind.DATE]
    kind = material.pick(
        ["product"] * bool(whole and money) + ["difference"] * (len(money) > 1) + ["days"] * (len(dates) > 1)
    )
    if kind is None:
        return None
    if kind == "product":
        first, second = material.random.choice(whole), material.random.choice(money)
        sign, word = "*", "times"
    else:
        first, second = material.random.sample(money if kind == "difference" else dates, 2)
        sign, word = "-", "minus"
        if kind == "days" and columns.index(first) < columns.index(second):
            first, second = second, first
    names = [material.label(scope, column) for column in (first, second)]
    said = f"days from {names[1]} to {names[0]}" if kind == "days" else f"{names[0]} {word} {names[1]}"
    written = (column.as_date(scope.reference(column)) for column in (first, second))
    return Figure(f" {sign} ".join(written), lambda style: said)


def of_rows(material: Material) -> Draft | None:
    """`SELECT product_name, price - cost FROM products WHERE …`."""
    scope = material.scope(0)
    figure = _row_expression(material, scope) if scope else None
    conditions = material.conditions(scope, material.random.choice((1, 2))) if scope else None
    shown = material.shown(scope.base, 1) if scope else []
    if scope is None or figure is None or conditions is None or not shown:
        return None
    if any(p.operator is Operator.MISSING and p.column.sql in figure.sql for p in conditions):
        return None  # nothing is computed from NULL
    sql = f"SELECT {shown[0].sql}, {figure.sql} FROM {scope.sql}{material.where(scope, conditions)}"

    def say(style: Style) -> str:
        columns = listing([material.label(scope, shown[0]), figure.say(style)])
        entities = material.each(scope, shown, material.labels.table(scope.base.name))
        return f"{columns} of {entities}{material.phrases(scope, conditions, style)}"

    return Draft(sql, say)


def _computed(material: Material, scope: Scope, used: Sequence[Column]) -> Figure | None:
    """A sum or average of a computed number."""
    expression = _row_expression(material, scope)
    if expression is None:
        return None
    is_sum = " * " in expression.sql or material.chance(0.3)
    entities = material.labels.table(scope.base.name)

    def say(style: Style) -> str:
        said = expression.say(style)
        if said.startswith("days from"):
            return f"{(style.total if is_sum else style.average).format(l=said)} of {entities}"
        # `total amount minus tax` could be the total amount, less tax
        return f"{'sum' if is_sum else 'average'} of {said} of {entities}"

    return Figure(f"{'sum' if is_sum else 'avg'}({expression.sql})", say)


def _share(material: Material, scope: Scope, used: Sequence[Column]) -> Figure | None:
    """The percentage of rows that meet a condition."""
    condition = material.conditions(scope, 1, scope.base.columns, maximum=10**9, excluded=used)
    if condition is None:
        return None
    entities = material.labels.table(scope.base.name)
    sql = f"100.0 * count(*) FILTER (WHERE {material.all_of(scope, condition)}) / count(*)"
    return Figure(
        sql, lambda style: f"percentage of {entities}{material.phrases(scope, condition, style)}", within=True
    )


def _per_thing(material: Material, scope: Scope, used: Sequence[Column]) -> Figure | None:
    """Rows per distinct value of a key: orders per customer."""
    keys = [k for k in material.catalogue.foreign_keys if k.table == scope.base.name and k.references != k.table]
    key = material.pick(keys)
    if key is None or material.catalogue.column(key.table, key.column).nullable:
        return None
    entities, thing = material.labels.table(key.table), material.labels.role(key)
    if any(group.unique and group.table == key.references for group in used):  # one thing a group: its share tells more
        return Figure("100.0 * count(*) / sum(count(*)) OVER ()", lambda style: f"percentage of all the {entities}")
    column = scope.reference(material.catalogue.column(key.table, key.column))
    sql = f"1.0 * count(*) / count(DISTINCT {column})"
    return Figure(sql, lambda style: f"average number of {entities} per {thing} that has any", within=True)


def _range(material: Material, scope: Scope, used: Sequence[Column]) -> Figure | None:
    """The distance between the highest and the lowest value."""
    measure = material.measure([column for column in scope.base.columns if column not in used])
    if measure is None:
        return None
    column, label = scope.reference(measure), material.label(scope, measure)
    entities = material.labels.table(scope.base.name)
    return Figure(
        f"max({column}) - min({column})",
        lambda style: (
            f"difference between {style.highest.format(l=label)} and {style.lowest.format(l=label)} of {entities}"
        ),
    )


def _any(material: Material, scope: Scope, used: Sequence[Column]) -> Figure | None:
    return material.random.choice((_computed, _computed, _share, _per_thing, _range))(material, scope, used)


def overall(material: Material) -> Draft | None:
    """One figure over all rows that meet a condition."""
    scope = material.scope(0, 1)
    if scope is None:
        return None
    conditions = material.conditions(scope, material.random.choice((1, 1, 2)), scope.tables[-1].columns, 3, 10**9)
    if conditions is None:
        return None
    scope = scope.narrowed(material.used(conditions))
    figure = _any(material, scope, material.used(conditions))
    if figure is None:
        return None
    sql = f"SELECT {figure.sql} FROM {scope.sql}{material.where(scope, conditions)}"

    def say(style: Style) -> str:
        return figure.say(style) + material.among(scope, conditions, style)

    return Draft(sql, say)


def grouped(material: Material) -> Draft | None:
    """One figure for each group."""
    scope = material.scope(0, 1, 1)
    group = material.group(scope) if scope else None
    if scope is None or group is None:
        return None
    conditions = material.conditions(scope, material.random.choice((0, 0, 1)), None, 3, 10**9, excluded=[group])
    if conditions is None or not 2 <= len(aggregates.group_sizes(scope, conditions, group)) <= MAXIMUM_ROWS:
        return None
    used = material.used(conditions, group)
    scope = scope.narrowed(used)
    figure = _any(material, scope, used)
    if figure is None:
        return None
    column, label = scope.reference(group), material.label(scope, group)
    sql = f"SELECT {column}, {figure.sql} FROM {scope.sql}{material.where(scope, conditions)} GROUP BY {column}"

    def say(style: Style) -> str:
        per = f", within each {label}" if figure.within else f" {style.per.format(l=label)}"
        return f"{label} and {figure.say(style)}{per}{material.among(scope, conditions, style)}"

    return Draft(sql, say)


FORMS = (of_rows, overall, overall, grouped, grouped)
NEEDS = "numbers or dates to compute with, or a value with few different ones"
"""What a schema and its rows must have for it."""
