"""Sets: distinct values, and values that meet one condition and also, or not, or instead, another."""

from services.author.catalogue import Column
from services.author.teachers.grammar.labels import several
from services.author.teachers.grammar.material import MAXIMUM_ROWS, Draft, Material, satisfying
from services.author.teachers.grammar.scope import Scope
from services.author.teachers.grammar.styles import Style


def _members(material: Material, scope: Scope) -> list[Column]:
    """Columns whose values may form a set: keys to other tables and categories, never NULL."""
    return [
        column
        for column in scope.base.columns
        if not column.nullable
        and column != scope.base.key
        and (material.roles.is_category(column) or material.catalogue.is_key(column))
    ]


def combined(material: Material) -> Draft | None:
    """`SELECT customer_id FROM orders WHERE … INTERSECT SELECT customer_id FROM orders WHERE …`."""
    first = material.scope(0)
    member = material.pick(_members(material, first)) if first else None
    if first is None or member is None:
        return None
    second, other = first, member
    elsewhere = [
        (table, column)
        for table in material.catalogue.tables.values()
        for column in table.columns
        if table.name != first.base.name and column.name == member.name and column != table.key and table.rows
        if column.kind is member.kind
    ]
    if elsewhere and material.chance(0.5):
        table, other = material.random.choice(elsewhere)
        second = Scope(material.catalogue, table)
        if other.nullable:
            return None
    one = material.conditions(first, 1, maximum=10**9, excluded=[member])
    two = material.conditions(second, 0 if second != first and material.chance(0.4) else 1, None, 1, 10**9, [other])
    if one is None or two is None or (first == second and one == two):
        return None
    operator = material.random.choice(("INTERSECT", "EXCEPT", "UNION"))
    left = {row[member] for row in satisfying(first, one)}
    right = {row[other] for row in satisfying(second, two)}
    found = {"INTERSECT": left & right, "EXCEPT": left - right, "UNION": left | right}[operator]
    if not 1 <= len(found) <= MAXIMUM_ROWS or found in (left, right):
        return None
    sql = f"SELECT {member.sql} FROM {first.sql}{material.where(first, one)} {operator} "
    sql += f"SELECT {other.sql} FROM {second.sql}{material.where(second, two)}"
    label = several(material.label(first, member))
    rows, others = material.labels.table(first.base.name), material.labels.table(second.base.name)

    def say(style: Style) -> str:
        link = {"INTERSECT": style.both, "EXCEPT": style.except_, "UNION": style.or_}[operator]
        ours = f"{rows}{material.phrases(first, one, style)}"
        return f"distinct {label} that occur in {ours} {link} {others}{material.phrases(second, two, style)}"

    return Draft(sql, say)


def distinct(material: Material) -> Draft | None:
    """`SELECT DISTINCT city FROM customers WHERE …`."""
    scope = material.scope(0, 1, 1)
    if scope is None:
        return None
    column = material.pick([c for c in scope.columns if not c.nullable and material.roles.is_shown(c) and not c.unique])
    conditions = material.conditions(scope, material.random.choice((1, 1, 2)), scope.base.columns, 2, 10**9)
    if column is None or conditions is None or column in [predicate.column for predicate in conditions]:
        return None
    values = [row[column] for row in satisfying(scope, conditions)]
    if not 1 <= len(set(values)) <= min(MAXIMUM_ROWS, len(values) - 1):
        return None
    scope = scope.narrowed(material.used(conditions, column))
    sql = f"SELECT DISTINCT {scope.reference(column)} FROM {scope.sql}{material.where(scope, conditions)}"
    label, entities = several(material.label(scope, column)), material.labels.table(scope.base.name)

    def say(style: Style) -> str:
        return f"distinct {label} of {entities}{material.phrases(scope, conditions, style)}"

    return Draft(sql, say)


def distinct_number(material: Material) -> Draft | None:
    """`SELECT count(DISTINCT customer_id) FROM orders WHERE …`."""
    scope = material.scope(0, 1)
    if scope is None:
        return None
    column = material.pick([c for c in scope.base.columns if c != scope.base.key and not c.unique])
    usable = [c for c in scope.columns if c != column]
    conditions = material.conditions(scope, material.random.choice((1, 1, 2)), usable, 2, 10**9)
    if column is None or conditions is None:
        return None
    scope = scope.narrowed(material.used(conditions, column))
    sql = f"SELECT count(DISTINCT {scope.reference(column)}) FROM {scope.sql}{material.where(scope, conditions)}"
    label, entities = several(material.label(scope, column)), material.labels.table(scope.base.name)

    def say(style: Style) -> str:
        return f"number of different {label} among {entities}{material.phrases(scope, conditions, style)}"

    return Draft(sql, say)


FORMS = (combined, combined, distinct, distinct_number)
NEEDS = "values that repeat: a reference, or text with few values"
"""What a schema and its rows must have for it."""
