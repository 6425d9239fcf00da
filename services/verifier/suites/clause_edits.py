"""Single edits of a statement's clauses: join type, WHERE, GROUP BY, ORDER BY, LIMIT, DISTINCT, set operations. Pure.

An edit changes the message it was made for in place and looks its parts up only when it runs.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from services.verifier.suites.tree import pb
from shared.contracts.suites import MutationKind as Kind

Edit = tuple[Kind, Callable[[], None]]

_JOIN_TYPES = (pb.JOIN_INNER, pb.JOIN_LEFT, pb.JOIN_RIGHT, pb.JOIN_FULL)
LARGEST_INTEGER = 2**31 - 1
"""Of the parse tree; larger numbers are floats there."""

_SET_OPERATIONS = (pb.SETOP_UNION, pb.SETOP_INTERSECT, pb.SETOP_EXCEPT)


def setting(message: Any, path: str, value: Any) -> Callable[[], None]:
    """An edit that assigns a scalar field, e.g. `jointype` or `rexpr.a_const.sval.sval`."""
    *within, field = path.split(".")
    return lambda: setattr(reduce(getattr, within, message), field, value)


def clearing(message: Any, *fields: str) -> Callable[[], None]:
    """An edit that empties fields."""

    def edit() -> None:
        for field in fields:
            message.ClearField(field)

    return edit


def dropping(message: Any, field: str, index: int) -> Callable[[], None]:
    """An edit that drops one element of a list."""
    return lambda: getattr(message, field).__delitem__(index)


def select_edits(select: Any) -> Iterator[Edit]:
    """Edits of one SELECT, or one arm of a set operation."""
    if select.op != pb.SETOP_NONE:
        yield from _set_operation_edits(select)
    elif select.target_list:
        yield from _distinct_edits(select)
    if select.HasField("where_clause") and not _is_connective(select.where_clause):
        yield Kind.PREDICATE, clearing(select, "where_clause")
    if select.HasField("having_clause"):
        yield Kind.HAVING, clearing(select, "having_clause")
    for index in range(len(select.group_clause)):
        yield Kind.GROUPING, dropping(select, "group_clause", index)
    yield from _sort_and_limit_edits(select)


def _is_connective(node: Any) -> bool:
    return bool(node.HasField("bool_expr")) and node.bool_expr.boolop != pb.NOT_EXPR


def _set_operation_edits(select: Any) -> Iterator[Edit]:
    if select.op == pb.SETOP_UNION:
        yield Kind.SET_OPERATION, setting(select, "all", not select.all)
    for operation in _SET_OPERATIONS:
        if operation != select.op:
            yield Kind.SET_OPERATION, setting(select, "op", operation)


def _distinct_edits(select: Any) -> Iterator[Edit]:
    if not select.distinct_clause:
        yield Kind.DISTINCT, lambda: select.distinct_clause.append(pb.Node())
    elif select.distinct_clause[0].WhichOneof("node") is None:  # DISTINCT ON without ON chooses no row
        yield Kind.DISTINCT, clearing(select, "distinct_clause")


def _sort_and_limit_edits(select: Any) -> Iterator[Edit]:
    for index in range(len(select.sort_clause)):
        yield Kind.SORT, dropping(select, "sort_clause", index)
    for field in ("limit_count", "limit_offset"):
        if not select.HasField(field):
            continue
        dropped = (field, "limit_option") if field == "limit_count" else (field,)
        yield Kind.LIMIT, clearing(select, *dropped)
        constant = getattr(select, field).a_const
        if constant.HasField("ival"):
            for step in (-1, 1):
                if 0 < constant.ival.ival + step <= LARGEST_INTEGER:
                    yield Kind.LIMIT, setting(select, f"{field}.a_const.ival.ival", constant.ival.ival + step)


def join_edits(join: Any) -> Iterator[Edit]:
    """Another join type."""
    if join.HasField("quals") or join.using_clause or join.is_natural:
        for join_type in _JOIN_TYPES:
            if join_type != join.jointype:
                yield Kind.JOIN_TYPE, setting(join, "jointype", join_type)


def sort_edits(sort: Any) -> Iterator[Edit]:
    """The other direction; NULLs on the other side."""
    descending = sort.sortby_dir == pb.SORTBY_DESC
    yield Kind.SORT, setting(sort, "sortby_dir", pb.SORTBY_ASC if descending else pb.SORTBY_DESC)
    first = sort.sortby_nulls == pb.SORTBY_NULLS_FIRST or (sort.sortby_nulls == pb.SORTBY_NULLS_DEFAULT and descending)
    yield Kind.SORT, setting(sort, "sortby_nulls", pb.SORTBY_NULLS_LAST if first else pb.SORTBY_NULLS_FIRST)


_DEFAULT_FRAME = 1058
"""FRAMEOPTION_DEFAULTS of Postgres: RANGE UNBOUNDED PRECEDING to CURRENT ROW."""


def window_edits(window: Any) -> Iterator[Edit]:
    """Partition, order or frame dropped."""
    for field in ("partition_clause", "order_clause"):
        for index in range(len(getattr(window, field))):
            yield Kind.WINDOW, dropping(window, field, index)
    if window.frame_options != _DEFAULT_FRAME:

        def default_frame() -> None:
            window.frame_options = _DEFAULT_FRAME
            window.ClearField("start_offset")
            window.ClearField("end_offset")

        yield Kind.WINDOW, default_frame


def connective_edits(expression: Any) -> Iterator[Edit]:
    """AND ↔ OR; one conjunct dropped where more than two are left (see `node_edits` for two)."""
    if expression.boolop == pb.NOT_EXPR:
        return
    yield (
        Kind.CONNECTIVE,
        setting(expression, "boolop", pb.OR_EXPR if expression.boolop == pb.AND_EXPR else pb.AND_EXPR),
    )
    if len(expression.args) > 2:
        for index in range(len(expression.args)):
            yield Kind.PREDICATE, dropping(expression, "args", index)
