"""The parse allowlist: may this text run as a candidate? The second wall, on top of the sandbox's grants.

Works on libpg_query's JSON tree (Postgres 18's own grammar): it knows no depth limit of its own and walks four times
faster than the protobuf tree. `analyse` runs in a parser process (see `parser`), `precheck` before it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from postgast.native import lib as _libpg_query

from services.verifier.functions import (
    ALLOWED_FUNCTIONS,
    ALLOWED_NODES,
    CLOCK_FUNCTIONS,
    FORBIDDEN_TYPES,
    SYSTEM_COLUMNS,
    calls_harm,
)

MAXIMUM_BYTES = 16 * 1024
"""Longest statement that is parsed."""

_IDENTITY_FUNCTIONS = frozenset(
    {"CURRENT_USER", "SESSION_USER", "CURRENT_ROLE", "USER", "CURRENT_CATALOG", "CURRENT_SCHEMA"}
)
_SYSTEM_SCHEMAS = ("pg_", "information_schema")


@dataclass(frozen=True)
class Analysis:
    """What the parse tree says of a statement. At most one of `syntax_error` and `refused` is set."""

    syntax_error: str | None = None
    refused: str | None = None
    reads_table: bool = False
    reads_clock: bool = False
    """Its result depends on when it runs: never cached."""

    @property
    def runnable(self) -> bool:
        """Whether it may run."""
        return self.syntax_error is None and self.refused is None


def precheck(sql: str) -> str | None:
    """Why a text is refused before any parser sees it, or None."""
    if "\x00" in sql:
        return "holds a NUL byte"
    try:
        size = len(sql.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    return f"is longer than {MAXIMUM_BYTES // 1024} KB" if size > MAXIMUM_BYTES else None


def analyse(sql: str) -> Analysis:
    """Parse and judge one text. Run it where a parser crash is survivable."""
    tree = _libpg_query.pg_query_parse(sql.encode())
    try:
        if tree.error:
            return Analysis(syntax_error=tree.error.contents.message.decode(errors="replace"))
        statements = json.loads(tree.parse_tree).get("stmts", [])
        return _judge(statements)
    except RecursionError:
        return Analysis(refused="is nested too deeply")
    finally:
        _libpg_query.pg_query_free_parse_result(tree)


def _judge(statements: list[dict[str, Any]]) -> Analysis:
    if len(statements) != 1:
        return Analysis(refused=f"holds {len(statements)} statements: exactly one SELECT is allowed")
    ((kind, select),) = statements[0]["stmt"].items()
    if kind != "SelectStmt":
        return Analysis(refused=f"is no SELECT ({kind})")
    tables: set[tuple[str, ...]] = set()
    ctes: set[str] = set()
    reads_clock = False
    for name, node in _nodes("SelectStmt", select):
        if (reason := _refusal(name, node)) is not None:
            return Analysis(refused=reason)
        if name == "RangeVar":
            tables.add((node.get("schemaname", ""), node.get("relname", "")))
        elif name == "CommonTableExpr":
            ctes.add(node["ctename"])
        reads_clock = reads_clock or _reads_clock(name, node)
    reads_table = any(schema or relation not in ctes for schema, relation in tables)
    return Analysis(reads_table=reads_table, reads_clock=reads_clock)


def _reads_clock(kind: str, node: dict[str, Any]) -> bool:
    if kind == "FuncCall":
        return _last_name(node["funcname"]) in CLOCK_FUNCTIONS
    literal = node.get("sval", {}).get("sval", "") if kind == "A_Const" else ""
    return kind == "SQLValueFunction" or literal.strip().lower() in _CLOCK_WORDS


_CLOCK_WORDS = frozenset({"now", "today", "yesterday", "tomorrow"})
"""Literals that a cast to a date turns into the current one."""

_UNWRAPPED = {
    **dict.fromkeys(("larg", "rarg"), "SelectStmt"),
    **dict.fromkeys(("alias", "join_using_alias"), "Alias"),
    **dict.fromkeys(("arg", "context_item", "expr", "val", "value"), "JsonValueExpr"),
    **dict.fromkeys(("on_empty", "on_error"), "JsonBehavior"),
    "boolval": "Boolean",
    "bsval": "BitString",
    "collClause": "CollateClause",
    "constructor": "JsonAggConstructor",
    "cycle_clause": "CTECycleClause",
    "format": "JsonFormat",
    "fval": "Float",
    "intoClause": "IntoClause",
    "ival": "Integer",
    "output": "JsonOutput",
    "over": "WindowDef",
    "returning": "JsonReturning",
    "search_clause": "CTESearchClause",
    "sval": "String",
    "typeName": "TypeName",
    "withClause": "WithClause",
}
"""Fields whose node comes without its type's name around it. A field that is not here is refused by its own name."""


def _nodes(name: str, node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(type, fields) of every node of a tree, depth first, without recursion."""
    stack: list[tuple[str, Any]] = [(name, node)]
    while stack:
        kind, fields = stack.pop()
        yield kind, fields
        for key, value in fields.items():
            if type(value) is list:
                children = value
            elif type(value) is dict:
                children = [value]
            else:
                continue
            for child in children:
                if type(child) is not dict or not child:
                    continue
                if _wrapped(child):
                    stack.extend(child.items())
                else:
                    stack.append((_UNWRAPPED.get(key, key), child))


def _wrapped(node: dict[str, Any]) -> bool:
    """`{"ColumnRef": {…}}`: a node with its type's name around it."""
    if len(node) != 1:
        return False
    ((key, value),) = node.items()
    return key[0].isupper() and isinstance(value, dict)


def _names(parts: list[dict[str, Any]]) -> list[str]:
    return [part["String"]["sval"] for part in parts if "String" in part]


def _last_name(names: list[dict[str, Any]]) -> str:
    name: str = names[-1]["String"]["sval"]
    return name.lower()


def _refusal(kind: str, node: dict[str, Any]) -> str | None:
    """Why one node may not be part of a candidate, or None."""
    if kind not in ALLOWED_NODES:
        return f"uses {kind}, which is not allowed in a read-only SELECT"
    if kind == "FuncCall":
        return _refused_function(node["funcname"])
    if kind == "RangeVar":
        return _refused_relation(node)
    if kind == "TypeName":
        return _refused_type(node.get("names", []))
    if kind == "ColumnRef":
        return _refused_column(_names(node["fields"]))
    if kind == "A_Indirection":
        return _refused_column(["", *_names(node["indirection"])])
    if kind in ("A_Expr", "SortBy", "SubLink"):
        operator = node.get("name") or node.get("useOp") or node.get("operName") or []
        if len(operator) > 1:
            return "names an operator by its schema"
    if kind == "SQLValueFunction" and node["op"].removeprefix("SVFOP_") in _IDENTITY_FUNCTIONS:
        return "asks who runs it"
    return None


def _refused_function(names: list[dict[str, Any]]) -> str | None:
    parts = [part["String"]["sval"].lower() for part in names]
    qualified = len(parts) > 2 or (len(parts) == 2 and parts[0] != "pg_catalog")
    if qualified or parts[-1] not in ALLOWED_FUNCTIONS:
        return f"calls {'.'.join(parts)}(), which is not among the allowed functions"
    return None


def _refused_column(names: list[str]) -> str | None:
    """`x.y`, or what is taken of an expression."""
    if SYSTEM_COLUMNS.intersection(names):
        return f"reads {'.'.join(filter(None, names))}, which says how a row is stored"
    called = next((name for name in names[1:] if calls_harm(name)), None)
    return f"takes .{called} of something, which would call that function" if called else None


def _refused_relation(node: dict[str, Any]) -> str | None:
    schema, name = node.get("schemaname", "").lower(), node.get("relname", "").lower()
    if "catalogname" in node or schema.startswith(_SYSTEM_SCHEMAS) or (not schema and name.startswith("pg_")):
        return f"reads {schema + '.' if schema else ''}{name}, a system relation"
    return None


def _refused_type(names: list[dict[str, Any]]) -> str | None:
    if not names:
        return None
    name = _last_name(names)
    if name in FORBIDDEN_TYPES or name.startswith("pg_"):
        return f"casts to {name}"
    return None
