"""`notes.md` of a new bundle: what the schema leaves out and the rows show, and what a person has to add."""

import re
from collections.abc import Mapping

import postgast

from shared.bundles.sql_statements import nodes, statements
from shared.seed_rows import Row, rows_of
from shared.sql import relation_name

DESCRIBED = {nodes.CONSTR_NOTNULL, nodes.CONSTR_PRIMARY, nodes.CONSTR_IDENTITY, nodes.CONSTR_GENERATED}
"""A column with one of these needs no word on NULL."""
MOST_VALUES = 12
"""Columns with more different values are no code list."""
_NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
_TEXTS = ("text", "varchar", "bpchar", "citext")
_COUNTED = re.compile(r"(^|_)(id|no|num|number|count|cnt|qty|quantity|year|code|zip|key)s?$|id$", re.IGNORECASE)
"""Names of numbers that need no unit."""
_UNIT = re.compile(
    r"_(kg|g|cm|mm|m|km|usd|eur|gbp|pct|percent|ms|s|sec|seconds|min|minutes|hrs|hours|days|kwh)$", re.IGNORECASE
)


def undescribed_columns(schema_sql: str, notes: str = "", seed_sql: str = "") -> dict[str, list[str]]:
    """Table to the columns that may be NULL while neither the schema's comments nor the notes say what that means.

    Where the seed has rows of a table, only columns that are NULL in one of them.
    """
    columns = table_columns(schema_sql)
    rows = (
        rows_of(seed_sql, {table: dict.fromkeys(names, False) for table, names in columns.items()}) if seed_sql else {}
    )
    found: dict[str, list[str]] = {}
    commented = _null_comments(schema_sql)
    never_null = _never_null(schema_sql)
    for statement in statements(schema_sql):
        if statement.kind != "create_stmt" or statement.node.HasField("partbound"):
            continue
        table = relation_name(statement.node.relation)
        for element in statement.node.table_elts:
            column = element.column_def
            kinds = {constraint.constraint.contype for constraint in column.constraints}
            if not column.colname or kinds & DESCRIBED or (table, column.colname) in never_null:
                continue
            line = rf"^\s*\"?{re.escape(column.colname)}\"?\s.*--.*\bNULL\b"
            said = re.search(line, statement.text, re.MULTILINE | re.IGNORECASE)
            noted = re.search(rf"(?<![\w.]){re.escape(table)}\.{re.escape(column.colname)}\b", notes)
            occurs = table not in rows or any(row.get(column.colname, "") is None for row in rows[table])
            if occurs and not (said or noted or (table, column.colname) in commented):
                found.setdefault(table, []).append(column.colname)
    return found


def _never_null(schema_sql: str) -> set[tuple[str, str]]:
    """Columns of primary keys that are written as constraints of a table, in CREATE or ALTER."""
    found = set()
    for statement in statements(schema_sql):
        if statement.kind == "create_stmt":
            constraints = [element.constraint for element in statement.node.table_elts]
        elif statement.kind == "alter_table_stmt":
            constraints = [getattr(command.alter_table_cmd, "def").constraint for command in statement.node.cmds]
        else:
            continue
        table = relation_name(statement.node.relation)
        keys = [constraint.keys for constraint in constraints if constraint.contype == nodes.CONSTR_PRIMARY]
        found |= {(table, key.string.sval) for names in keys for key in names}
    return found


def _null_comments(schema_sql: str) -> set[tuple[str, str]]:
    """Columns whose COMMENT ON speaks of NULL."""
    found = set()
    for statement in statements(schema_sql):
        if statement.kind == "comment_stmt" and statement.node.objtype == nodes.OBJECT_COLUMN:
            *table, column = [item.string.sval for item in statement.node.object.list.items]
            if re.search(r"\bNULL\b", statement.node.comment, re.IGNORECASE):
                found.add((".".join(table).removeprefix("public."), column))
    return found


def notes_skeleton(schema_sql: str, seed_sql: str = "", hidden: frozenset[str] = frozenset()) -> str:
    """`notes.md` for a person to fill in. Only the values that occur are in the prompt already.

    What is open stands in a Markdown comment, which no prompt shows. `hidden`: `table.column` of untold values.
    """
    columns = table_columns(schema_sql)
    rows = (
        rows_of(seed_sql, {table: dict.fromkeys(names, True) for table, names in columns.items()}) if seed_sql else {}
    )
    open_lines = [
        "<!-- Write below what an analyst needs and the schema does not say; this comment is in no prompt.",
        "Formulas, one a line: `- Revenue: quantity * unit_price over orders that are not cancelled.`",
        "What NULL means, one a line: `- orders.shipped_at: not shipped yet.`",
        "Names that say little: `- orders.shp_ccy = shipping currency`.",
    ]
    nulls = [f"- {table}: {', '.join(names)}" for table, names in undescribed_columns(schema_sql, "", seed_sql).items()]
    units = [f"- {table}: {', '.join(names)}" for table, names in _without_unit(schema_sql, columns).items()]
    open_lines += ["Columns that may be NULL, meaning unknown:", *nulls] if nulls else []
    open_lines += ["Numbers whose unit is not said (euros? days? a share or percent?):", *units] if units else []
    values = _values_seen(schema_sql, columns, rows, hidden)
    seen = ["Values that occur", *values] if values else []
    return "\n".join([*open_lines, "-->", *seen, ""])


def table_columns(schema_sql: str) -> dict[str, dict[str, str]]:
    """Table to column to the name of its type (an array's begins with `_`), partitions left out."""
    return {
        relation_name(statement.node.relation): {
            element.column_def.colname: ("_" if element.column_def.type_name.array_bounds else "")
            + element.column_def.type_name.names[-1].string.sval
            for element in statement.node.table_elts
            if element.column_def.colname
        }
        for statement in statements(schema_sql)
        if statement.kind == "create_stmt" and not statement.node.HasField("partbound")
    }


def _without_unit(schema_sql: str, columns: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Table to numeric columns with no comment at all and no name that makes one needless."""
    found: dict[str, list[str]] = {}
    commented = set(re.findall(r"^\s*\"?(\w+)\"?\s.*--", schema_sql, re.MULTILINE))
    referring = _referring(schema_sql)
    commented |= set(re.findall(r"COMMENT ON COLUMN [\w.\"]*?\.\"?(\w+)\"? IS", schema_sql))
    for table, types in columns.items():
        for column, type_name in types.items():
            named = _COUNTED.search(column) or _UNIT.search(column)
            said = column in commented or named or (table, column) in referring
            if type_name in _NUMBERS and not said:
                found.setdefault(table, []).append(column)
    return found


def _referring(schema_sql: str) -> set[tuple[str, str]]:
    """Columns of keys that are written as constraints of a table."""
    return {
        (relation_name(statement.node.relation), column.string.sval)
        for statement in statements(schema_sql)
        if statement.kind in ("create_stmt", "alter_table_stmt")
        for constraint in postgast.find_nodes(statement.node, nodes.Constraint)
        for column in (*constraint.fk_attrs, *constraint.keys)
    }


def _values_seen(
    schema_sql: str,
    columns: Mapping[str, Mapping[str, str]],
    rows: Mapping[str, list[Row]],
    hidden: frozenset[str],
) -> list[str]:
    """One line for each code list that the schema does not spell out: text with few values that repeat."""
    lines = []
    for table, types in columns.items():
        for column, type_name in types.items():
            said = [str(row[column]) for row in rows.get(table, ()) if row.get(column) is not None]
            values = sorted(set(said))
            is_list = type_name in _TEXTS and 2 <= len(values) <= MOST_VALUES and len(said) >= 3 * len(values)
            told = all(re.search(rf"\b{re.escape(value)}\b", schema_sql) for value in values)
            if is_list and not told and f"{table}.{column}" not in hidden and max(map(len, values)) <= 40:
                lines.append(f"- {table}.{column}: {', '.join(values)}.")
    return lines
