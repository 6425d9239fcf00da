"""How a gold is run so that its tie groups are known: the sort keys of its outermost ORDER BY, found in the parse tree.

Keys that the gold does not select are appended as hidden columns. With plain DISTINCT and with set operations Postgres
demands that keys are output columns already, and a bare alias always means the output column; those are looked up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import postgast
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no types

from services.verifier.statement import Analysis, analyse, precheck
from services.verifier.values import Value

pb = postgast.pg_query_pb2

SortKey = int | str
"""An output column: by index (negative from the end: appended ones) or by name."""


@dataclass(frozen=True)
class GoldPlan:
    """How to run a gold. `error` is set when it is not one SELECT."""

    sql: str
    hidden_columns: int = 0
    """Appended sort keys at the end of each row."""
    sort_keys: tuple[SortKey, ...] | None = ()
    """None: ordered by keys that could not be traced, so its row order counts as it stands."""
    ordered: bool = False
    """Has an outermost ORDER BY."""
    reads_clock: bool = False
    error: str | None = None


def plan_gold(sql: str) -> GoldPlan:
    """Plan one gold. A gold is trusted more than a candidate: the function allowlist does not bind it."""
    if (reason := precheck(sql)) is not None:
        return GoldPlan(sql, error=reason)
    analysis: Analysis = analyse(sql)
    if analysis.syntax_error is not None:
        return GoldPlan(sql, error=analysis.syntax_error)
    try:
        tree = postgast.parse(sql)
    except DecodeError:  # deeper than protobuf reads: its order counts as it stands
        return GoldPlan(sql, sort_keys=None, ordered=True, reads_clock=analysis.reads_clock)
    if len(tree.stmts) != 1 or not tree.stmts[0].stmt.HasField("select_stmt"):
        return GoldPlan(sql, error="is not exactly one SELECT")
    select = tree.stmts[0].stmt.select_stmt
    if not select.sort_clause:
        return GoldPlan(sql, reads_clock=analysis.reads_clock)
    keys = _trace(select)
    if keys is None:
        return GoldPlan(sql, sort_keys=None, ordered=True, reads_clock=analysis.reads_clock)
    appended = [key for key in keys if not isinstance(key, int | str)]
    for node in appended:
        select.target_list.append(pb.Node(res_target=pb.ResTarget(val=node)))
    positions = iter(range(-len(appended), 0))
    return GoldPlan(
        sql=postgast.deparse(tree) if appended else sql,
        hidden_columns=len(appended),
        sort_keys=tuple(key if isinstance(key, int | str) else next(positions) for key in keys),
        ordered=True,
        reads_clock=analysis.reads_clock,
    )


def _trace(select: Any) -> list[Any] | None:
    """Each sort key as an index, a name, or the expression to append. None when one cannot be traced."""
    is_set_operation = select.op != pb.SETOP_NONE
    plain_distinct = len(select.distinct_clause) == 1 and select.distinct_clause[0].WhichOneof("node") is None
    names = _output_names(select)
    keys: list[Any] = []
    for sort in select.sort_clause:
        node = sort.sort_by.node
        name = _bare_name(node)
        if node.HasField("a_const") and node.a_const.HasField("ival"):
            keys.append(node.a_const.ival.ival - 1)
        elif name is not None and (name in names or is_set_operation):
            keys.append(name)
        elif not (is_set_operation or plain_distinct):
            keys.append(node)
        else:
            index = _same_expression(node, select)
            if index is None:
                return None
            keys.append(index)
    return keys


def _bare_name(node: Any) -> str | None:
    """`x` of an unqualified column reference."""
    fields = node.column_ref.fields if node.HasField("column_ref") else []
    return str(fields[0].string.sval) if len(fields) == 1 and fields[0].HasField("string") else None


def _output_names(select: Any) -> set[str]:
    """The names that outputs surely have: aliases, columns, functions."""
    names = set()
    for target in select.target_list:
        value = target.res_target.val
        if target.res_target.name:
            names.add(target.res_target.name)
        elif value.HasField("column_ref") and value.column_ref.fields[-1].HasField("string"):
            names.add(value.column_ref.fields[-1].string.sval)
        elif value.HasField("func_call"):
            names.add(value.func_call.funcname[-1].string.sval)
    return names


def _same_expression(node: Any, select: Any) -> int | None:
    """Index of the output that is this very expression; None without one, or behind a star of unknown width."""
    wanted = _text_of(node)
    for index, target in enumerate(select.target_list):
        value = target.res_target.val
        if value.HasField("column_ref") and value.column_ref.fields[-1].HasField("a_star"):
            return None
        if _text_of(value) == wanted:
            return index
    return None


def _text_of(node: Any) -> str:
    """An expression's canonical text."""
    select = pb.SelectStmt(target_list=[pb.Node(res_target=pb.ResTarget(val=node))])
    tree = pb.ParseResult(version=180004, stmts=[pb.RawStmt(stmt=pb.Node(select_stmt=select))])
    text: str = postgast.deparse(tree)
    return text


def tie_groups(
    columns: Sequence[str], rows: Sequence[tuple[Value, ...]], sort_keys: tuple[SortKey, ...] | None
) -> list[int]:
    """For each row, hidden columns included, its tie group: rows next to each other with equal keys share one.

    Without traceable keys every row is a group of its own.
    """
    indices = _indices(columns, sort_keys)
    if indices is None:
        return list(range(len(rows)))
    groups: list[int] = []
    previous: tuple[Value, ...] | None = None
    for row in rows:
        keys = tuple(row[index] for index in indices)
        groups.append(groups[-1] + (keys != previous) if groups else 0)
        previous = keys
    return groups


def _indices(columns: Sequence[str], sort_keys: tuple[SortKey, ...] | None) -> list[int] | None:
    """Column indices of the keys; None when there are no keys or one names no column here."""
    if not sort_keys:
        return None
    indices = []
    for key in sort_keys:
        if isinstance(key, str) and key not in columns:
            return None
        index = columns.index(key) if isinstance(key, str) else key
        if index >= len(columns):
            return None
        indices.append(index)
    return indices
