"""A table joined with itself: along its own key, or rows that share a value."""

from services.author.catalogue import Column, ForeignKey
from services.author.teachers.grammar.material import Draft, Material
from services.author.teachers.grammar.predicates import Predicate, literal
from services.author.teachers.grammar.scope import Scope
from services.author.teachers.grammar.styles import Style


def _own_key(material: Material) -> ForeignKey | None:
    return material.pick([key for key in material.catalogue.foreign_keys if key.table == key.references])


def _aliased(predicates: list[Predicate], alias: str) -> str:
    return "".join(f" AND {predicate.sql(f'{alias}.{predicate.column.sql}')}" for predicate in predicates)


def pairs(material: Material) -> Draft | None:
    """`SELECT a.employee_name, b.employee_name FROM employees a JOIN employees b ON b.employee_id = a.manager_id …`."""
    key = _own_key(material)
    if key is None:
        return None
    scope = Scope(material.catalogue, material.catalogue.tables[key.table])
    left, right = material.shown(scope.base, 1), material.shown(scope.base, material.random.choice((1, 2)))
    usable = [column for column in scope.base.columns if column.name != key.column]
    mine = material.conditions(scope, material.random.choice((0, 1, 1)), usable, maximum=10**9)
    theirs = material.conditions(scope, material.random.choice((0, 1)), usable, maximum=10**9)
    if not left or not right or mine is None or theirs is None:
        return None
    shown = [f"a.{left[0].sql}", f"b.{right[-1].sql}"]
    compared = material.pick([c for c in usable if material.roles.is_measure(c)]) if material.chance(0.3) else None
    same = material.pick([c for c in usable if material.roles.is_category(c)]) if material.chance(0.3) else None
    referencing, referenced = scope.ends(key)
    table = scope.base.sql
    sql = f"SELECT {', '.join(shown)} FROM {table} a JOIN {table} b ON b.{referenced.sql} = a.{referencing.sql}"
    conditions = _aliased(mine, "a") + _aliased(theirs, "b")
    conditions += f" AND a.{compared.sql} > b.{compared.sql}" if compared else ""
    conditions += f" AND a.{same.sql} = b.{same.sql}" if same else ""
    if conditions:
        sql += " WHERE " + conditions.removeprefix(" AND ")
    role = material.labels.role(key)

    def say(style: Style) -> str:
        text = f"{material.label(scope, left[0])} of {material.each(scope, left, material.labels.table(key.table))}"
        text += material.phrases(scope, mine, style)
        text += f" and the {material.label(scope, right[-1])} of their {role}"
        text += material.phrases(scope, theirs, style)
        text += f", if their {material.label(scope, compared)} is higher than the {role}'s" if compared else ""
        text += f", if both have the same {material.label(scope, same)}" if same else ""
        return text

    return Draft(sql, say)


def _shared_column(material: Material, scope: Scope) -> Column | None:
    """What two rows may have in common: a category or a key to another table."""
    return material.pick(
        [
            column
            for column in scope.base.columns
            if material.roles.is_category(column)
            or (material.catalogue.is_key(column) and column != scope.base.key and not column.unique)
        ]
    )


def peers(material: Material) -> Draft | None:
    """Others with the same category as one given row."""
    scope = material.scope(0)
    key = scope.base.key if scope else None
    shared = _shared_column(material, scope) if scope else None
    if scope is None or key is None or shared is None:
        return None
    shown = [column for column in material.shown(scope.base, 2) if column != shared]
    rows = [row for row in scope.rows if row[shared] is not None]
    if not shown or not rows:
        return None
    one = material.random.choice(rows)
    compared = material.measure(scope.base.columns, nullable=False) if material.chance(0.5) else None
    least = one[compared] if compared else None
    found = [
        row
        for row in rows
        if row[shared] == one[shared] and row[key] != one[key] and (compared is None or row[compared] > least)  # type: ignore[operator]
    ]
    if not 1 <= len(found) <= 50:
        return None
    columns = ", ".join(f"b.{column.sql}" for column in shown)
    sql = f"SELECT {columns} FROM {scope.base.sql} a JOIN {scope.base.sql} b USING ({shared.sql})"
    sql += f" WHERE a.{key.sql} = {literal(one[key])} AND b.{key.sql} <> {literal(one[key])}"
    sql += f" AND b.{compared.sql} > a.{compared.sql}" if compared else ""
    row = material.labels.row(scope.base.name)
    entities = material.each(scope, shown, f"other {material.labels.table(scope.base.name)}")

    def say(style: Style) -> str:
        columns = " and ".join(material.label(scope, column) for column in shown)
        text = f"{columns} of {entities} {style.same.format(l=material.label(scope, shared))} {row} {one[key]}"
        return text + (f" {style.higher.format(l=material.label(scope, compared))}" if compared else "")

    return Draft(sql, say)


def twins(material: Material) -> Draft | None:
    """How many pairs of rows share one value and another."""
    scope = material.scope(0)
    key = scope.base.key if scope else None
    shared = _shared_column(material, scope) if scope else None
    if scope is None or key is None or shared is None:
        return None
    conditions = material.conditions(scope, 1, [c for c in scope.base.columns if c != shared], maximum=10**9)
    if conditions is None:
        return None
    table = scope.base.sql
    sql = f"SELECT count(*) FROM {table} a JOIN {table} b USING ({shared.sql})"
    sql += f" WHERE a.{key.sql} < b.{key.sql}{_aliased(conditions, 'a')}{_aliased(conditions, 'b')}"

    def say(style: Style) -> str:
        entities = material.labels.table(scope.base.name)
        phrases = material.phrases(scope, conditions, style)
        return f"number of pairs of {entities}{phrases} that share the same {material.label(scope, shared)}"

    return Draft(sql, say)


FORMS = (pairs, pairs, peers, peers, twins)
NEEDS = "a table with a key and a value that several rows share, or one that refers to itself"
"""What a schema and its rows must have for it."""
