"""Rows of one table that meet conditions; or how many there are."""

from services.author.teachers.grammar import aggregates
from services.author.teachers.grammar.labels import listing
from services.author.teachers.grammar.material import Draft, Material
from services.author.teachers.grammar.predicates import Operator, is_dated
from services.author.teachers.grammar.styles import Style


def rows(material: Material) -> Draft | None:
    """`SELECT product_name, price FROM products WHERE stock > 20`, at times sorted by a number."""
    scope = material.scope(0)
    if scope is None:
        return None
    shown = material.shown(scope.base, material.random.choice((1, 2, 2)))
    conditions = material.conditions(scope, material.random.choice((1, 1, 2, 2, 3)), excluded=shown)
    if not shown or conditions is None:
        return None
    order = material.measure(scope.base.columns, nullable=False) if material.chance(0.25) else None
    descending = material.chance(0.6)
    if order in [predicate.column for predicate in conditions if predicate.operator is Operator.EQUAL]:
        order = None  # all rows are alike in it
    sql = f"SELECT {', '.join(column.sql for column in shown)} FROM {scope.sql}{material.where(scope, conditions)}"
    if order is not None:
        sql += f" ORDER BY {order.sql}{' DESC' if descending else ''}"

    def say(style: Style) -> str:
        columns = listing([material.label(scope, column) for column in shown])
        entities = material.each(scope, shown, material.labels.table(scope.base.name))
        text = f"{columns} of {entities}{material.phrases(scope, conditions, style)}"
        if order is None:
            return text
        form = style.descending if descending else style.ascending
        return f"{text}, {form.format(l=material.label(scope, order))}"

    return Draft(sql, say, ordered=order is not None)


def number(material: Material) -> Draft | None:
    """`SELECT count(*) FROM orders WHERE …`; or the sum, average or extreme of a number."""
    scope = material.scope(0)
    conditions = material.conditions(scope, material.random.choice((1, 2, 2)), maximum=10**9) if scope else None
    if scope is None or conditions is None:
        return None
    figure = aggregates.any_figure(scope, material, [predicate.column for predicate in conditions])
    entities = material.labels.table(scope.base.name)
    sql = f"SELECT {figure.sql} FROM {scope.sql}{material.where(scope, conditions)}"

    def say(style: Style) -> str:
        return aggregates.over_rows(figure, entities, material.phrases(scope, conditions, style), style)

    return Draft(sql, say)


def extreme_date(material: Material) -> Draft | None:
    """`SELECT max(ordered_on) FROM orders WHERE …`: when the first or last was."""
    scope = material.scope(0)
    column = (
        material.pick([c for c in scope.base.columns if is_dated(c) and material.roles.values[c]]) if scope else None
    )
    if scope is None or column is None:
        return None
    conditions = material.conditions(scope, material.random.choice((1, 2)), maximum=10**9, excluded=[column])
    if conditions is None:
        return None
    function, word = material.random.choice((("min", "earliest"), ("max", "latest")))
    sql = f"SELECT {function}({column.sql}) FROM {scope.sql}{material.where(scope, conditions)}"

    def say(style: Style) -> str:
        entities = material.labels.table(scope.base.name)
        return f"{word} {material.label(scope, column)} of {entities}{material.phrases(scope, conditions, style)}"

    return Draft(sql, say)


FORMS = (rows, rows, rows, number, number, extreme_date)
NEEDS = "a table with rows and a column to restrict by: a number, a date, a flag, or text with few values"
"""What a schema and its rows must have for it."""
