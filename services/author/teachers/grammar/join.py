"""Columns of rows and of what they refer to; conditions on either."""

from services.author.teachers.grammar import aggregates
from services.author.teachers.grammar.labels import listing
from services.author.teachers.grammar.material import Draft, Material
from services.author.teachers.grammar.styles import Style


def rows(material: Material) -> Draft | None:
    """`SELECT order_id, customer_name FROM orders JOIN customers USING (customer_id) WHERE …`."""
    scope = material.scope(1, 1, 2)
    if scope is None:
        return None
    base = material.shown(scope.base, material.random.choice((1, 1, 2)))
    joined = material.pick([c for c in scope.tables[-1].columns if material.roles.is_shown(c) and c not in scope.keys])
    if not base or joined is None:
        return None
    shown = [*base, joined]
    conditions = material.conditions(scope, material.random.choice((1, 2, 2)), excluded=shown)
    if conditions is None:
        return None
    scope = scope.narrowed(material.used(conditions, *shown))
    sql = f"SELECT {', '.join(scope.reference(column) for column in shown)} FROM {scope.sql}"
    sql += material.where(scope, conditions)

    def say(style: Style) -> str:
        columns = listing([material.label(scope, column) for column in shown])
        entities = material.each(scope, shown, material.labels.table(scope.base.name))
        return f"{columns} of {entities}{material.phrases(scope, conditions, style)}"

    return Draft(sql, say)


def number(material: Material) -> Draft | None:
    """A figure over rows restricted by what they refer to."""
    scope = material.scope(1, 2)
    if scope is None:
        return None
    outer = material.conditions(scope, 1, scope.tables[-1].columns, maximum=10**9)
    if outer is None:
        return None
    inner = material.conditions(scope, 1, scope.base.columns, maximum=10**9) if material.chance(0.6) else []
    if inner is None:
        return None
    conditions = [*outer, *inner]
    scope = scope.narrowed(material.used(conditions))
    figure = aggregates.any_figure(scope, material, material.used(conditions))
    entities = material.labels.table(scope.base.name)
    sql = f"SELECT {figure.sql} FROM {scope.sql}{material.where(scope, conditions)}"

    def say(style: Style) -> str:
        return aggregates.over_rows(figure, entities, material.phrases(scope, conditions, style), style)

    return Draft(sql, say)


FORMS = (rows, rows, rows, number)
NEEDS = "a reference between two tables, declared or shown by names and values, that is never NULL"
"""What a schema and its rows must have for it."""
