"""The rows of a seed, read from its INSERT statements with Postgres' grammar; nothing is executed."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import postgast

from shared.sql import relation_name

Value = int | Decimal | str | bool | None
Row = dict[str, Value]
"""Column name to value. Text, dates and timestamps stay text here; a value that is not known is absent."""


def rows_of(seed_sql: str, columns: Mapping[str, Mapping[str, bool]]) -> dict[str, list[Row]]:
    """Table to rows for every `INSERT … VALUES` into a table of `columns`.

    `columns`: table to its columns in order, each with whether it has a default. A column that the INSERT leaves out is
    NULL without one. Values that are no literals (function calls, sub-selects) are left out of their row.
    Raises postgast.PgQueryError where the seed does not parse.
    """
    found: dict[str, list[Row]] = {}
    for raw in postgast.parse(seed_sql).stmts:
        if not raw.stmt.HasField("insert_stmt"):
            continue
        insert = raw.stmt.insert_stmt
        table = relation_name(insert.relation)
        if table not in columns:
            continue
        names = [target.res_target.name for target in insert.cols] or list(columns[table])
        left_out = [name for name, has_default in columns[table].items() if name not in names and not has_default]
        rows = found.setdefault(table, [])
        for values in insert.select_stmt.select_stmt.values_lists:
            row: Row = dict.fromkeys(left_out)
            for name, node in zip(names, values.list.items, strict=False):
                is_literal, value = _literal(node)
                if is_literal:
                    row[name] = value
            rows.append(row)
    return found


def _literal(node: Any) -> tuple[bool, Value]:
    """Whether the node is a literal, and its value."""
    if node.HasField("type_cast"):
        return _literal(node.type_cast.arg)
    if node.HasField("a_expr") and node.a_expr.name[0].string.sval == "-" and not node.a_expr.HasField("lexpr"):
        is_literal, value = _literal(node.a_expr.rexpr)
        return (True, -value) if is_literal and isinstance(value, int | Decimal) else (False, None)
    if not node.HasField("a_const"):
        return False, None
    constant = node.a_const
    if constant.isnull:
        return True, None
    if constant.HasField("sval"):
        return True, constant.sval.sval
    if constant.HasField("boolval"):
        return True, bool(constant.boolval.boolval)
    if constant.HasField("fval"):
        return True, Decimal(constant.fval.fval)
    if constant.HasField("ival"):
        return True, int(constant.ival.ival)
    return False, None
