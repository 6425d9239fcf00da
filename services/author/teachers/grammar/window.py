"""Ranks, running totals, neighbours and group averages beside each row."""

from services.author.teachers.grammar import aggregates
from services.author.teachers.grammar.material import MAXIMUM_ROWS, Draft, Material
from services.author.teachers.grammar.styles import Style


def beside_rows(material: Material) -> Draft | None:
    """`SELECT product_name, rank() OVER (ORDER BY price DESC) FROM products WHERE …`, also within groups."""
    scope = material.scope(0)
    key = scope.base.key if scope else None
    measure = material.measure(scope.base.columns, nullable=False) if scope else None
    if scope is None or measure is None or key is None:
        return None
    categories = [c for c in scope.base.columns if material.roles.is_category(c) and not c.nullable]
    group = material.pick(categories) if material.chance(0.5) else None
    shown = [column for column in material.shown(scope.base, 1) if column not in (group, measure)]
    conditions = material.conditions(scope, material.random.choice((1, 1, 2)), None, 3, excluded=[measure, *shown])
    if not shown or conditions is None or (group and group in [predicate.column for predicate in conditions]):
        return None
    name, label = measure.sql, material.label(scope, measure)
    kinds = ["rank", "rank", "average", "gap", "previous"]
    if material.roles.is_additive(measure):
        kinds += ["running", "running"]
    kind = material.random.choice(kinds)
    descending = material.chance(0.7)
    within = f"PARTITION BY {group.sql}" if group else ""
    by_key = f"{within} ORDER BY {key.sql}".strip()
    figure = {
        "rank": f"rank() OVER ({f'{within} ORDER BY {name}'.strip()}{' DESC' if descending else ''})",
        "average": f"avg({name}) OVER ({within})",
        "gap": f"{name} - avg({name}) OVER ({within})",
        "previous": f"lag({name}) OVER ({by_key})",
        "running": f"sum({name}) OVER ({by_key})",
    }[kind]
    columns = f"{shown[0].sql}, {figure}"
    sql = f"SELECT {columns} FROM {scope.sql}{material.where(scope, conditions)}"
    key_label = material.label(scope, key)

    def say(style: Style) -> str:
        order = (style.descending if descending else style.ascending).format(l=label)
        average = style.average.format(l=label) + ("" if group else " of them all")
        figure = {
            "rank": f"rank {order}",
            "average": average,
            "gap": f"{label} minus {average}",
            "previous": f"previous {label} in order of {key_label}",
            "running": f"running total of {label} in order of {key_label}",
        }[kind]
        each = f" within each {material.label(scope, group)}" if group else ""
        first = material.label(scope, shown[0])
        return f"{first} and {figure}{each}{material.among(scope, conditions, style)}"

    return Draft(sql, say)


def leaders(material: Material) -> Draft | None:
    """The rows that rank first in their group."""
    scope = material.scope(0)
    measure = material.measure(scope.base.columns, nullable=False) if scope else None
    group = material.group(scope) if scope else None
    if scope is None or measure is None or group is None or measure == group:
        return None
    shown = [column for column in material.shown(scope.base, 1) if column not in (group, measure)]
    conditions = material.conditions(scope, material.random.choice((0, 1)), None, 5, 10**9, excluded=[measure, group])
    if not shown or conditions is None:
        return None
    descending, bound = material.chance(0.6), material.random.choice((1, 1, 2, 3))
    columns = f"{group.sql}, {shown[0].sql}"
    ranked = f"rank() OVER (PARTITION BY {group.sql} ORDER BY {measure.sql}{' DESC' if descending else ''}) AS r"
    sql = f"SELECT {columns} FROM (SELECT {columns}, {ranked} FROM {scope.sql}{material.where(scope, conditions)}) t"
    sql += " WHERE r = 1" if bound == 1 else f" WHERE r <= {bound}"
    entities, label = material.labels.table(scope.base.name), material.label(scope, group)

    def say(style: Style) -> str:
        extreme = f"{'highest' if descending else 'lowest'} {material.label(scope, measure)}"
        rank = f"ranked {bound} or better by {extreme}" if bound > 1 else f"of {extreme}"
        columns = f"{label} and {material.label(scope, shown[0])}"
        among = material.among(scope, conditions, style)
        return f"{columns} of the {entities} {rank} in each {label}, ties kept{among}"

    return Draft(sql, say)


def beside_groups(material: Material) -> Draft | None:
    """Groups with their figure and its rank, or its share of the whole."""
    scope = material.scope(0, 1, 1)
    group = material.group(scope) if scope else None
    if scope is None or group is None:
        return None
    conditions = material.conditions(scope, material.random.choice((0, 1)), None, 5, 10**9, excluded=[group])
    if conditions is None or not 3 <= len(aggregates.group_sizes(scope, conditions, group)) <= MAXIMUM_ROWS:
        return None
    used = material.used(conditions, group)
    scope = scope.narrowed(used)
    figure = aggregates.any_figure(scope, material, used, nullable=False)
    column, label = scope.reference(group), material.label(scope, group)
    sql = f"SELECT {column}, {figure.sql}, rank() OVER (ORDER BY {figure.sql} DESC) FROM {scope.sql}"
    sql += f"{material.where(scope, conditions)} GROUP BY {column}"
    entities = material.labels.table(scope.base.name)

    def say(style: Style) -> str:
        said = aggregates.over_rows(figure, entities, material.phrases(scope, conditions, style), style)
        groups = aggregates.by_group(f"{label}, {said}", conditions, style.per.format(l=label))
        return f"{groups}, and the rank by that figure, highest first"

    return Draft(sql, say)


FORMS = (beside_rows, beside_rows, leaders, beside_groups)
NEEDS = "a table whose rows a key names, and a number in it that is never NULL"
"""What a schema and its rows must have for it."""
