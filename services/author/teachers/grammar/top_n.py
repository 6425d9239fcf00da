"""The first rows or groups by a number; ties decided by a unique column that the question names."""

from services.author.teachers.grammar import aggregates
from services.author.teachers.grammar.labels import listing, several
from services.author.teachers.grammar.material import MAXIMUM_ROWS, Draft, Material, satisfying
from services.author.teachers.grammar.predicates import is_dated
from services.author.teachers.grammar.styles import Style

SIZES = (2, 3, 5, 10)


def rows(material: Material) -> Draft | None:
    """`SELECT product_name, price FROM products ORDER BY price DESC, product_id LIMIT 5`."""
    scope = material.scope(0, 0, 1)
    key = scope.base.key if scope else None
    order = material.measure(scope.base.columns, nullable=False) if scope else None
    if scope is None or key is None or order is None:
        return None
    shown = [column for column in material.shown(scope.base, 1) if column != order]
    if material.chance(0.5):
        shown.append(order)
    conditions = material.conditions(scope, material.random.choice((0, 1, 1, 2)), maximum=10**9, excluded=[order])
    size, descending = material.random.choice(SIZES), material.chance(0.65)
    if not shown or conditions is None or len(satisfying(scope, conditions)) <= size:
        return None
    scope = scope.narrowed(material.used(conditions, *shown, order))
    sql = f"SELECT {', '.join(scope.reference(column) for column in shown)} FROM {scope.sql}"
    sql += f"{material.where(scope, conditions)} ORDER BY {scope.reference(order)}{' DESC' if descending else ''}"
    sql += f", {scope.reference(key)} LIMIT {size}"

    def say(style: Style) -> str:
        columns = listing([material.label(scope, column) for column in shown])
        form = style.top if descending else style.bottom
        label = material.label(scope, order)
        leaders = form.format(v=size, t=material.labels.table(scope.base.name), l=label)
        ties = material.labels.ties(key, material.label(scope, key), style, shown)
        return f"{columns} of the {leaders}{material.among(scope, conditions, style)}, in that order, {ties}"

    return Draft(sql, say, ordered=True)


def recent(material: Material) -> Draft | None:
    """`SELECT order_id FROM orders WHERE … ORDER BY ordered_on DESC, order_id LIMIT 5`."""
    scope = material.scope(0)
    key = scope.base.key if scope else None
    date = material.date(scope.base.columns) if scope else None
    if scope is None or key is None or date is None:
        return None
    shown = [column for column in material.shown(scope.base, 2) if not is_dated(column)]
    conditions = material.conditions(scope, material.random.choice((1, 1, 2)), maximum=10**9, excluded=[date])
    size, descending = material.random.choice(SIZES), material.chance(0.65)
    if not shown or conditions is None or len(satisfying(scope, conditions)) <= size:
        return None
    sql = f"SELECT {', '.join(column.sql for column in shown)} FROM {scope.sql}{material.where(scope, conditions)}"
    sql += f" ORDER BY {date.sql}{' DESC' if descending else ''}, {key.sql} LIMIT {size}"
    word = "latest" if descending else "earliest"

    def say(style: Style) -> str:
        columns = listing([material.label(scope, column) for column in shown])
        entities = material.labels.table(scope.base.name)
        ties = material.labels.ties(key, material.label(scope, key), style, shown)
        among = material.among(scope, conditions, style)
        by = style.by_date.format(v=size, t=entities, l=material.label(scope, date), w=word)
        return f"{columns} of the {by}{among}, in that order, {ties}"

    return Draft(sql, say, ordered=True)


def groups(material: Material) -> Draft | None:
    """`SELECT city, count(*) FROM customers GROUP BY city ORDER BY count(*) DESC, city LIMIT 3`."""
    scope = material.scope(0, 1, 1, 2)
    group = material.group(scope) if scope else None
    if scope is None or group is None or group.is_enum:  # ties are decided alphabetically
        return None
    conditions = material.conditions(scope, material.random.choice((0, 1, 1)), maximum=10**9, excluded=[group])
    size, descending = material.random.choice(SIZES[:3]), material.chance(0.7)
    if conditions is None or len(aggregates.group_sizes(scope, conditions, group)) <= min(size, MAXIMUM_ROWS):
        return None
    used = material.used(conditions, group)
    scope = scope.narrowed(used)
    figure = aggregates.any_figure(scope, material, used, nullable=False)
    if figure.column is None and (conditions or scope.joins):
        descending = True  # the smallest groups would be those without rows
    column, label = scope.reference(group), material.label(scope, group)
    sql = f"SELECT {column}, {figure.sql} FROM {scope.sql}{material.where(scope, conditions)} GROUP BY {column}"
    sql += f" ORDER BY {figure.sql}{' DESC' if descending else ''}, {column} LIMIT {size}"
    entities, values = material.labels.table(scope.base.name), several(label)

    def say(style: Style) -> str:
        said = aggregates.over_rows(figure, entities, material.phrases(scope, conditions, style), style)
        form = style.top if descending else style.bottom
        leaders = form.format(v=size, t=values, l=said)
        return f"{leaders}, and that figure, in that order, {material.labels.ties(group, label, style, [group])}"

    return Draft(sql, say, ordered=True)


FORMS = (rows, rows, recent, groups, groups)
NEEDS = "a table whose rows a key names, and a number or date in it that is never NULL"
"""What a schema and its rows must have for it."""
