"""One figure or two for each group; groups kept by their figure."""

from services.author.teachers.grammar import aggregates
from services.author.teachers.grammar.material import MAXIMUM_ROWS, Draft, Material
from services.author.teachers.grammar.styles import Style


def figures(material: Material) -> Draft | None:
    """`SELECT channel, count(*) FROM orders GROUP BY channel`, joined, restricted or with a second figure."""
    scope = material.scope(0, 1, 2)
    group = material.group(scope) if scope else None
    if scope is None or group is None:
        return None
    number = material.random.choice((0, 0, 1, 1, 2))
    conditions = material.conditions(scope, number, maximum=10**9, excluded=[group])
    if conditions is None or not 2 <= len(aggregates.group_sizes(scope, conditions, group)) <= MAXIMUM_ROWS:
        return None
    used = material.used(conditions, group)
    scope = scope.narrowed(used)
    found = [aggregates.any_figure(scope, material, used)]
    if material.chance(0.25):
        second = aggregates.of_measure(scope, material, [*used, *(f.column for f in found if f.column)])
        if second is not None:
            found.append(second)
    column = scope.reference(group)
    sql = f"SELECT {column}, {', '.join(figure.sql for figure in found)} FROM {scope.sql}"
    sql += f"{material.where(scope, conditions)} GROUP BY {column}"
    label, entities = material.label(scope, group), material.labels.table(scope.base.name)

    def say(style: Style) -> str:
        phrases = material.phrases(scope, conditions, style)
        spoken = [aggregates.over_rows(figure, entities, "", style) for figure in found[:-1]]
        spoken.append(aggregates.over_rows(found[-1], entities, phrases, style))
        said = f"{label} and {' and '.join(spoken)}"
        return aggregates.by_group(said, conditions, style.per.format(l=label))

    return Draft(sql, say)


def having(material: Material) -> Draft | None:
    """`… GROUP BY city HAVING count(*) > 5`."""
    scope = material.scope(0, 1, 1)
    group = material.group(scope) if scope else None
    if scope is None or group is None:
        return None
    conditions = material.conditions(scope, material.random.choice((0, 0, 1)), maximum=10**9, excluded=[group])
    if conditions is None:
        return None
    sizes = aggregates.group_sizes(scope, conditions, group)
    if len(sizes) < 3:
        return None
    bound = sizes[material.random.randrange(len(sizes) - 1)]
    used = material.used(conditions, group)
    scope = scope.narrowed(used)
    figure = aggregates.any_figure(scope, material, used)
    column = scope.reference(group)
    sql = f"SELECT {column}, {figure.sql} FROM {scope.sql}{material.where(scope, conditions)}"
    sql += f" GROUP BY {column} HAVING count(*) > {bound}"
    label, entities = material.label(scope, group), material.labels.table(scope.base.name)

    def say(style: Style) -> str:
        said = aggregates.over_rows(figure, entities, material.phrases(scope, conditions, style), style)
        kept = "such " if conditions else ""
        groups = style.kept.format(l=label, v=bound, t=kept + entities)
        return aggregates.by_group(f"{label} and {said}", conditions, groups)

    return Draft(sql, say)


FORMS = (figures, figures, having)
NEEDS = "text or a whole number with few values that repeat, never NULL"
"""What a schema and its rows must have for it."""
