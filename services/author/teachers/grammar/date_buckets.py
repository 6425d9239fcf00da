"""Figures by year, quarter, month or weekday."""

from dataclasses import dataclass

from services.author.teachers.grammar import aggregates
from services.author.teachers.grammar.material import Draft, Material
from services.author.teachers.grammar.predicates import Operator, Predicate
from services.author.teachers.grammar.styles import Style


@dataclass(frozen=True)
class Bucket:
    """A span of the calendar. `{c}` is a date column."""

    sql: str
    noun: str
    """What the output column is, `{l}` the date's label."""
    per: str


POOLED = " across all years"
"""Twelve calendar months, not each year's own."""

BUCKETS = (
    Bucket("extract(year FROM {c})", "year", "year of {l}"),
    Bucket("date_trunc('month', {c})::date", "first day of month", "month of {l}"),
    Bucket("date_trunc('quarter', {c})::date", "first day of quarter", "quarter of {l}"),
    Bucket("extract(month FROM {c})", "month number", "calendar month of {l}" + POOLED),
    Bucket("extract(isodow FROM {c})", "weekday number, Monday as 1,", "weekday of {l}"),
)


def figures(material: Material) -> Draft | None:
    """`SELECT extract(year FROM ordered_on), count(*) FROM orders GROUP BY 1`."""
    scope = material.scope(0, 0, 1)
    date = material.date(scope.base.columns) if scope else None
    if scope is None or date is None:
        return None
    bucket = material.random.choice(BUCKETS)
    others = [column for column in scope.columns if column != date]
    restricted = scope.tables[-1].columns if scope.joins else others
    conditions = material.conditions(
        scope, 1 if scope.joins else material.random.choice((0, 1, 1)), restricted, 5, 10**9
    )
    if conditions is None:
        return None
    is_one_year = "year" not in bucket.sql and material.chance(0.4)
    if is_one_year:
        year = material.random.choice(sorted({int(str(value)[:4]) for value in material.roles.values[date]}))
        conditions.append(Predicate(date, Operator.YEAR, (year,)))
    scope = scope.narrowed(material.used(conditions, date))
    figure = aggregates.any_figure(scope, material, material.used(conditions))
    sql = f"SELECT {bucket.sql.format(c=date.as_date(scope.reference(date)))}, {figure.sql} FROM {scope.sql}"
    sql += f"{material.where(scope, conditions)} GROUP BY 1"
    label, entities = material.label(scope, date), material.labels.table(scope.base.name)
    per = bucket.per.removesuffix(POOLED) if is_one_year else bucket.per

    def say(style: Style) -> str:
        said = aggregates.over_rows(figure, entities, material.phrases(scope, conditions, style), style)
        return aggregates.by_group(f"{bucket.noun} and {said}", conditions, style.per.format(l=per.format(l=label)))

    return Draft(sql, say)


def busiest(material: Material) -> Draft | None:
    """Only buckets with more than so many rows."""
    scope = material.scope(0)
    date = material.date(scope.base.columns) if scope else None
    if scope is None or date is None:
        return None
    bucket = material.random.choice(BUCKETS[1:])
    conditions = material.conditions(scope, material.random.choice((0, 1)), None, 20, 10**9, excluded=[date])
    if conditions is None:
        return None
    bound = material.random.randint(2, 12)
    expression = bucket.sql.format(c=date.as_date(date.sql))
    sql = f"SELECT {expression}, count(*) FROM {scope.sql}{material.where(scope, conditions)}"
    sql += f" GROUP BY 1 HAVING count(*) > {bound}"
    label, entities = material.label(scope, date), material.labels.table(scope.base.name)

    def say(style: Style) -> str:
        phrases = material.phrases(scope, conditions, style)
        kept = "such " if conditions else ""
        groups = style.kept.format(l=bucket.per.format(l=label), v=bound, t=kept + entities)
        return aggregates.by_group(f"{bucket.noun} and number of {entities}{phrases}", conditions, groups)

    return Draft(sql, say)


FORMS = (figures, figures, figures, busiest)
NEEDS = "a date or timestamp that is never NULL"
"""What a schema and its rows must have for it."""
