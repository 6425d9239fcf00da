"""Single edits of expressions: operators, functions, literals, columns, NULL handling. Pure.

An edit changes the message it was made for in place and looks its parts up only when it runs.
"""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from services.verifier.suites.clause_edits import LARGEST_INTEGER, Edit, clearing, dropping, setting
from services.verifier.suites.tree import Path, last_name, pb, string
from shared.contracts.suites import MutationKind as Kind

_COMPARISONS = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "=": ("<>", ">=", "<="),
    "<>": ("=",),
}
_ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/"}
_NEGATED = {"~~": "!~~", "~~*": "!~~*", "~": "!~", "~*": "!~*"}
_NEGATED |= {negated: plain for plain, negated in _NEGATED.items()}
_CASE_SWITCHED = {"~~": "~~*", "!~~": "!~~*", "~": "~*", "!~": "!~*"}
_CASE_SWITCHED |= {folded: plain for plain, folded in _CASE_SWITCHED.items()}
_BETWEEN_NEGATED = {
    pb.AEXPR_BETWEEN: (pb.AEXPR_NOT_BETWEEN, "NOT BETWEEN"),
    pb.AEXPR_NOT_BETWEEN: (pb.AEXPR_BETWEEN, "BETWEEN"),
}
_AGGREGATES = {
    "sum": ("avg", "max"),
    "avg": ("sum", "max"),
    "min": ("max",),
    "max": ("min",),
    "count": ("sum",),
}
_RANKS = {"rank": ("dense_rank", "row_number"), "dense_rank": ("rank",), "row_number": ("rank",), "lag": ("lead",)}
_RANKS |= {"lead": ("lag",), "first_value": ("last_value",), "last_value": ("first_value",)}
_PLAIN_FUNCTIONS = frozenset({"lower", "upper", "abs", "btrim", "trim", "initcap"})
_TRUNCATED_TO = {"day": ("week",), "week": ("day", "month"), "month": ("week", "quarter", "year")}
_TRUNCATED_TO |= {"quarter": ("month", "year"), "year": ("month", "quarter"), "hour": ("day",), "minute": ("hour",)}
_EXTRACTED = {"year": ("month",), "month": ("quarter", "year"), "quarter": ("month",), "week": ("month",)}
_EXTRACTED |= {"dow": ("isodow",), "isodow": ("dow",), "day": ("dow",), "hour": ("minute",), "doy": ("day",)}


def operator_edits(expression: Any, path: Path) -> Iterator[Edit]:
    """Of an `A_Expr`: its operator."""
    if expression.kind == pb.AEXPR_OP:
        name = expression.name[-1].string.sval
        columns = expression.lexpr.HasField("column_ref") and expression.rexpr.HasField("column_ref")
        if not (columns and "quals" in path):  # a join on `<>` is far from what anyone writes
            for other in _COMPARISONS.get(name, ()):
                yield Kind.COMPARISON, _renaming(expression, other)
        if name in _ARITHMETIC and expression.HasField("lexpr"):
            yield Kind.ARITHMETIC, _renaming(expression, _ARITHMETIC[name])
        if name in _NEGATED:
            yield Kind.NEGATION, _renaming(expression, _NEGATED[name])
        if name in _CASE_SWITCHED:
            yield Kind.LIKE, _renaming(expression, _CASE_SWITCHED[name])
    elif expression.kind in (pb.AEXPR_LIKE, pb.AEXPR_ILIKE):
        name = expression.name[-1].string.sval
        yield Kind.NEGATION, _renaming(expression, _NEGATED[name])
        other = pb.AEXPR_ILIKE if expression.kind == pb.AEXPR_LIKE else pb.AEXPR_LIKE
        yield Kind.LIKE, _renaming(expression, _CASE_SWITCHED[name], other)
        yield from _wildcard_edits(expression)
    elif expression.kind in _BETWEEN_NEGATED:
        kind, name = _BETWEEN_NEGATED[expression.kind]
        yield Kind.NEGATION, _renaming(expression, name, kind)
    elif expression.kind == pb.AEXPR_IN:
        yield Kind.NEGATION, _renaming(expression, "<>" if expression.name[-1].string.sval == "=" else "=")
        items = expression.rexpr.list
        if len(items.items) > 1:
            for index in range(len(items.items)):
                yield Kind.LITERAL, _dropping_item(expression, index)


def _renaming(expression: Any, name: str, kind: int | None = None) -> Callable[[], None]:
    def edit() -> None:
        del expression.name[:]
        expression.name.append(string(name))
        if kind is not None:
            expression.kind = kind

    return edit


def _dropping_item(expression: Any, index: int) -> Callable[[], None]:
    return lambda: expression.rexpr.list.items.__delitem__(index)


_PATTERN = "rexpr.a_const.sval.sval"


def _wildcard_edits(expression: Any) -> Iterator[Edit]:
    if not expression.rexpr.a_const.HasField("sval"):
        return
    pattern = expression.rexpr.a_const.sval.sval
    if pattern.startswith("%") and len(pattern) > 1:
        yield Kind.LIKE, setting(expression, _PATTERN, pattern[1:])
    if pattern.endswith("%") and len(pattern) > 1:
        yield Kind.LIKE, setting(expression, _PATTERN, pattern[:-1])


def call_edits(call: Any) -> Iterator[Edit]:
    """Of a function call: another function, DISTINCT, FILTER, COUNT(*), the unit of a date."""
    name = last_name(call.funcname)
    if not call.agg_star:
        for other in (*_AGGREGATES.get(name, ()), *(_RANKS.get(name, ()) if call.HasField("over") else ())):
            kind = Kind.WINDOW if name in _RANKS else Kind.AGGREGATE
            yield kind, _calling(call, other)
    if call.HasField("agg_filter"):
        yield Kind.PREDICATE, clearing(call, "agg_filter")
    if name in ("count", "sum", "avg", "string_agg", "array_agg") and call.args and not call.HasField("over"):
        yield Kind.DISTINCT, setting(call, "agg_distinct", not call.agg_distinct)
    if name == "count" and call.args:

        def star() -> None:
            call.ClearField("args")
            call.agg_distinct = False
            call.agg_star = True

        yield Kind.COUNT, star
    units = {"date_trunc": _TRUNCATED_TO, "extract": _EXTRACTED, "date_part": _EXTRACTED}.get(name)
    if units and call.args and call.args[0].a_const.HasField("sval"):
        for unit in units.get(call.args[0].a_const.sval.sval.lower(), ()):
            yield Kind.DATE_UNIT, _unit(call, unit)


def _calling(call: Any, name: str) -> Callable[[], None]:
    def edit() -> None:
        del call.funcname[:]
        call.funcname.append(string(name))

    return edit


def _unit(call: Any, unit: str) -> Callable[[], None]:
    def edit() -> None:
        call.args[0].a_const.sval.sval = unit

    return edit


def node_edits(node: Any, path: Path) -> Iterator[Edit]:
    """Edits that put another expression in this one's place."""
    kind = node.WhichOneof("node")
    if kind == "bool_expr" and node.bool_expr.boolop == pb.NOT_EXPR:
        yield Kind.NEGATION, _becoming(node, lambda: node.bool_expr.args[0])
    elif kind == "bool_expr" and len(node.bool_expr.args) == 2:
        yield Kind.PREDICATE, _becoming(node, lambda: node.bool_expr.args[0])
        yield Kind.PREDICATE, _becoming(node, lambda: node.bool_expr.args[1])
    elif _is_bare_predicate(node, path):
        yield Kind.NEGATION, _becoming(node, lambda: _negation(node))
    elif kind == "coalesce_expr":
        yield Kind.NULL_HANDLING, _becoming(node, lambda: node.coalesce_expr.args[0])
    elif kind == "a_expr" and node.a_expr.kind == pb.AEXPR_NULLIF:
        yield Kind.NULL_HANDLING, _becoming(node, lambda: node.a_expr.lexpr)
    elif kind == "a_expr" and node.a_expr.kind == pb.AEXPR_BETWEEN:
        yield Kind.COMPARISON, _becoming(node, lambda: _half_open(node.a_expr, ">=", "<"))
        yield Kind.COMPARISON, _becoming(node, lambda: _half_open(node.a_expr, ">", "<="))
    elif kind == "type_cast" and node.type_cast.arg.WhichOneof("node") != "a_const":
        yield Kind.CAST, _becoming(node, lambda: node.type_cast.arg)
    elif (
        kind == "func_call" and last_name(node.func_call.funcname) in _PLAIN_FUNCTIONS and len(node.func_call.args) == 1
    ):
        yield Kind.FUNCTION, _becoming(node, lambda: node.func_call.args[0])


def _is_bare_predicate(node: Any, path: Path) -> bool:
    """EXISTS, IN (SELECT …), or a boolean column that is a condition by itself: only NOT negates them."""
    if path[-1:] == ("negated",):
        return False  # the NOT is dropped instead
    if node.HasField("sub_link"):
        return node.sub_link.sub_link_type in (pb.EXISTS_SUBLINK, pb.ANY_SUBLINK)
    condition = path[-1:] in (("where_clause",), ("quals",), ("having_clause",)) or path[-2:] == ("bool_expr", "args")
    return condition and bool(node.HasField("column_ref"))


def _becoming(node: Any, other: Callable[[], Any]) -> Callable[[], None]:
    def edit() -> None:
        replacement = pb.Node()
        replacement.CopyFrom(other())
        node.CopyFrom(replacement)

    return edit


def _negation(node: Any) -> Any:
    return pb.Node(bool_expr=pb.BoolExpr(boolop=pb.NOT_EXPR, args=[node]))


def _half_open(between: Any, lower: str, upper: str) -> Any:
    low, high = between.rexpr.list.items
    sides = [
        pb.Node(a_expr=pb.A_Expr(kind=pb.AEXPR_OP, name=[string(name)], lexpr=between.lexpr, rexpr=bound))
        for name, bound in ((lower, low), (upper, high))
    ]
    return pb.Node(bool_expr=pb.BoolExpr(boolop=pb.AND_EXPR, args=sides))


def null_test_edits(test: Any) -> Iterator[Edit]:
    """IS NULL ↔ IS NOT NULL."""
    other = pb.IS_NOT_NULL if test.nulltesttype == pb.IS_NULL else pb.IS_NULL
    yield Kind.NULL_HANDLING, setting(test, "nulltesttype", other)


def case_edits(case: Any) -> Iterator[Edit]:
    """One WHEN dropped, or the ELSE."""
    if len(case.args) > 1:
        for index in range(len(case.args)):
            yield Kind.CASE, dropping(case, "args", index)
    if case.HasField("defresult"):
        yield Kind.CASE, clearing(case, "defresult")


_AMOUNT = re.compile(r"(-?\d+)(\s*[a-z]+)", re.IGNORECASE)


def cast_edits(cast: Any) -> Iterator[Edit]:
    """An interval's amount, one more and one less."""
    text = cast.arg.a_const.sval.sval
    if not text or not cast.type_name.names:
        return
    target = last_name(cast.type_name.names)
    if target == "interval" and (found := _AMOUNT.search(text)):
        for step in (-1, 1):
            other = f"{text[: found.start()]}{int(found[1]) + step}{found[2]}{text[found.end() :]}"
            yield Kind.INTERVAL, setting(cast, "arg.a_const.sval.sval", other)


_POSITIONS = frozenset(
    {"limit_count", "limit_offset", "group_clause", "sort_clause", "order_clause", "partition_clause"}
)


def literal_edits(constant: Any, path: Path) -> Iterator[Edit]:
    """A number off by one unit of its last digit. Positions in ORDER BY and the like are no literals."""
    if (path[-2:-1] and path[-2] in _POSITIONS) or path[-3:-1] == ("sort_by", "node"):
        return
    if constant.HasField("ival"):
        for other in (constant.ival.ival - 1, constant.ival.ival + 1):
            if other <= LARGEST_INTEGER:
                yield Kind.LITERAL, setting(constant, "ival.ival", other)
    elif constant.HasField("fval"):
        value = Decimal(constant.fval.fval)
        exponent = value.as_tuple().exponent
        unit = Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
        for near in (value - unit, value + unit):
            yield Kind.LITERAL, setting(constant, "fval.fval", str(near))
