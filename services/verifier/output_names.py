"""How Postgres names an output column that has no alias (its FigureColname), on libpg_query's protobuf tree. Pure.

A bare name in ORDER BY means the output of that name before any input column: `SELECT ts::date FROM t ORDER BY ts`
sorts by the date.
"""

from typing import Any

import postgast

pb = postgast.pg_query_pb2

UNNAMED = "?column?"

_FIXED = {
    "coalesce_expr": "coalesce",
    "a_array_expr": "array",
    "row_expr": "row",
    "grouping_func": "grouping",
    "json_object_constructor": "json_object",
    "json_array_constructor": "json_array",
    "json_array_query_constructor": "json_array",
    "json_object_agg": "json_objectagg",
    "json_array_agg": "json_arrayagg",
}


def output_name(target: Any) -> str:
    """The name of one entry of a select list (a `ResTarget`)."""
    return str(target.name) or _figured(target.val)[0] or UNNAMED


def _figured(node: Any) -> tuple[str, bool]:
    """The name, and whether it is a good one: a cast or CASE takes its own kind only where inside there is none."""
    kind = node.WhichOneof("node")
    value: Any = getattr(node, kind) if kind else None
    match kind:
        case "column_ref":
            return _last_string(value.fields), True
        case "a_indirection":
            field = _last_string(value.indirection)
            return (field, True) if field else _figured(value.arg)
        case "func_call":
            return _last_string(value.funcname), True
        case "collate_clause":
            return _figured(value.arg)
        case "type_cast":
            return _better(_figured(value.arg), _last_string(value.type_name.names))
        case "case_expr":
            return _better(_figured(value.defresult), "case")
        case "min_max_expr":
            return ("greatest" if value.op == pb.IS_GREATEST else "least"), True
        case "a_expr":
            return ("nullif", True) if value.kind == pb.AEXPR_NULLIF else ("", False)
        case "sqlvalue_function":
            return pb.SQLValueFunctionOp.Name(value.op).removeprefix("SVFOP_").removesuffix("_N").lower(), True
        case "sub_link":
            return _of_sublink(value)
        case _:
            return (_FIXED[kind], True) if kind in _FIXED else ("", False)


def _better(inner: tuple[str, bool], own: str) -> tuple[str, bool]:
    return inner if inner[1] else (own, False)


def _of_sublink(link: Any) -> tuple[str, bool]:
    if link.sub_link_type == pb.EXISTS_SUBLINK:
        return "exists", True
    if link.sub_link_type == pb.ARRAY_SUBLINK:
        return "array", True
    targets = link.subselect.select_stmt.target_list
    if link.sub_link_type == pb.EXPR_SUBLINK and targets:
        target = targets[0].res_target
        return (str(target.name), True) if target.name else _figured(target.val)
    return "", False


def _last_string(names: Any) -> str:
    strings = [name.string.sval for name in names if name.HasField("string")]
    return str(strings[-1]) if strings else ""
