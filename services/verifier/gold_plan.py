"""How a gold is run so that its tie groups are known: the sort keys of its outermost ORDER BY, found in the parse tree.

Keys that the gold does not select are appended as hidden columns. With plain DISTINCT and with set operations Postgres
demands that keys are output columns already, and a bare alias always means the output column; those are looked up.
"""

from dataclasses import dataclass
from typing import Any

import postgast
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no types

from services.verifier.output_names import output_name
from services.verifier.statement import Analysis, analyse, precheck

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
    as_it_stands = GoldPlan(sql, sort_keys=None, ordered=True, reads_clock=analysis.reads_clock)
    keys = _trace(select)
    if keys is None:
        return as_it_stands
    appended = [key for key in keys if not isinstance(key, int | str)]
    for number, node in enumerate(appended):
        # A name of its own: the output's natural name might be one that ORDER BY means.
        select.target_list.append(pb.Node(res_target=pb.ResTarget(name=f"sort key {number}", val=node)))
    rewritten = postgast.deparse(tree) if appended else sql
    if appended and not _same_tree(tree, rewritten):
        return as_it_stands
    positions = iter(range(-len(appended), 0))
    return GoldPlan(
        sql=rewritten,
        hidden_columns=len(appended),
        sort_keys=tuple(key if isinstance(key, int | str) else next(positions) for key in keys),
        ordered=True,
        reads_clock=analysis.reads_clock,
    )


def _same_tree(tree: Any, sql: str) -> bool:
    """Whether a text says what the tree does: what the deparser gets wrong is not run."""
    try:
        again = postgast.parse(sql)
    except postgast.PgQueryError:
        return False
    _forget_places(tree)
    _forget_places(again)
    return bool(tree == again)


def _forget_places(node: Any) -> None:
    """Clear where in the text each node stood."""
    for field, value in node.ListFields():
        if field.name.endswith("location") or field.name == "stmt_len":
            node.ClearField(field.name)
        elif field.message_type is not None:
            for child in value if field.is_repeated else (value,):
                _forget_places(child)


def _trace(select: Any) -> list[Any] | None:
    """Each sort key as an index, a name, or the expression to append. None when one cannot be traced."""
    only_outputs = select.op != pb.SETOP_NONE or bool(select.values_lists)
    plain_distinct = len(select.distinct_clause) == 1 and select.distinct_clause[0].WhichOneof("node") is None
    names = {output_name(target.res_target) for target in select.target_list}
    keys: list[Any] = []
    for sort in select.sort_clause:
        node = sort.sort_by.node
        name = _bare_name(node)
        if node.HasField("a_const") and node.a_const.HasField("ival"):
            keys.append(node.a_const.ival.ival - 1)
        elif name is not None and (name in names or only_outputs):
            keys.append(name)
        elif not (only_outputs or plain_distinct):
            keys.append(node)
        else:
            key = _distinct_output(node, select)
            if key is None:
                return None
            keys.append(key)
    return keys


def _bare_name(node: Any) -> str | None:
    """`x` of an unqualified column reference."""
    fields = node.column_ref.fields if node.HasField("column_ref") else []
    return str(fields[0].string.sval) if len(fields) == 1 and fields[0].HasField("string") else None


def _column_name(node: Any) -> str | None:
    """`x` of `x` and of `t.x`."""
    last = node.column_ref.fields[-1] if node.HasField("column_ref") else None
    return str(last.string.sval) if last is not None and last.HasField("string") else None


def _distinct_output(node: Any, select: Any) -> SortKey | None:
    """The output that a key of SELECT DISTINCT is: the same expression, or the only column of that name."""
    values = [target.res_target.val for target in select.target_list]
    stars = [index for index, value in enumerate(values) if _is_star(value)]
    wanted = expression_text(node)
    same = next((index for index, value in enumerate(values) if expression_text(value) == wanted), None)
    if same is None and (name := _column_name(node)) is not None:
        alike = [index for index, value in enumerate(values) if _column_name(value) == name]
        if stars and not alike:
            return name
        same = alike[0] if len(alike) == 1 else None
    return same if same is not None and not any(star < same for star in stars) else None


def _is_star(value: Any) -> bool:
    return value.HasField("column_ref") and bool(value.column_ref.fields[-1].HasField("a_star"))


def expression_text(node: Any) -> str:
    """An expression node's canonical text."""
    select = pb.SelectStmt(target_list=[pb.Node(res_target=pb.ResTarget(val=node))])
    tree = pb.ParseResult(version=180004, stmts=[pb.RawStmt(stmt=pb.Node(select_stmt=select))])
    text: str = postgast.deparse(tree)
    return text.removeprefix("SELECT ")
