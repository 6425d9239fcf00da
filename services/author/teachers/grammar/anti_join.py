"""Rows that nothing refers to, or nothing of a kind."""

from services.author.catalogue import ForeignKey
from services.author.teachers.grammar.labels import listing
from services.author.teachers.grammar.material import Draft, Material
from services.author.teachers.grammar.predicates import Predicate
from services.author.teachers.grammar.scope import Scope
from services.author.teachers.grammar.styles import Style


def _reference(material: Material) -> ForeignKey | None:
    """A key from another table that is the only one between the two."""
    keys = material.catalogue.foreign_keys
    pairs = [(key.table, key.references) for key in keys]
    return material.pick([k for k in keys if k.table != k.references and pairs.count((k.table, k.references)) == 1])


def _absent(child: Scope, key: ForeignKey, conditions: list[Predicate], material: Material) -> str:
    """The NOT EXISTS."""
    correlation = " = ".join(child.qualified(column) for column in child.ends(key))
    rest = f" AND {material.all_of(child, conditions)}" if conditions else ""
    return f"NOT EXISTS (SELECT 1 FROM {child.sql} WHERE {correlation}{rest})"


def _draft(material: Material, is_count: bool) -> Draft | None:
    key = _reference(material)
    if key is None:
        return None
    catalogue = material.catalogue
    parent, child = Scope(catalogue, catalogue.tables[key.references]), Scope(catalogue, catalogue.tables[key.table])
    if not parent.base.rows or not child.base.rows:
        return None
    inner = material.conditions(child, material.random.choice((0, 1, 1, 2)), maximum=10**9)
    outer = material.conditions(parent, material.random.choice((0, 0, 1)), maximum=10**9)
    shown = material.shown(parent.base, material.random.choice((1, 1, 2)))
    if inner is None or outer is None or not shown:
        return None
    referring, identity = child.ends(key)
    taken = {row[referring] for row in child.rows if all(p.holds(row[p.column]) for p in inner)}
    left = [r for r in parent.rows if r[identity] not in taken and all(p.holds(r[p.column]) for p in outer)]
    if not left or (len(left) > 50 and not is_count):
        return None
    columns = "count(*)" if is_count else ", ".join(column.sql for column in shown)
    restrictions = f"{material.all_of(parent, outer)} AND " if outer else ""
    sql = f"SELECT {columns} FROM {parent.sql} WHERE {restrictions}{_absent(child, key, inner, material)}"

    def say(style: Style) -> str:
        entities, others = material.labels.table(key.references), material.labels.table(key.table)
        what = "number" if is_count else listing([material.label(parent, column) for column in shown])
        if not is_count:
            entities = material.each(parent, shown, entities)
        lacking = style.lacking.format(t=others) + material.phrases(child, inner, style)
        restricted = f"{material.phrases(parent, outer, style)} and" if outer else ""
        return f"{what} of {entities}{restricted} {lacking}"

    return Draft(sql, say)


def rows(material: Material) -> Draft | None:
    """`SELECT customer_name FROM customers WHERE NOT EXISTS (SELECT 1 FROM orders WHERE …)`."""
    return _draft(material, is_count=False)


def number(material: Material) -> Draft | None:
    """How many there are."""
    return _draft(material, is_count=True)


FORMS = (rows, rows, rows, number)
NEEDS = "a reference between two tables that leaves some rows unreferred to"
"""What a schema and its rows must have for it."""
