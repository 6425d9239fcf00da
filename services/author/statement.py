"""Facts about one SQL statement, read from its parse tree. Pure."""

from dataclasses import dataclass
from typing import Any

import postgast

from shared.sql import SqlSyntaxError


@dataclass(frozen=True)
class Statement:
    """A parsed statement, its nodes sorted by type."""

    tree: Any
    by_type: dict[str, list[Any]]

    @property
    def outermost(self) -> Any:
        """The SELECT of a text that is one."""
        return self.tree.stmts[0].stmt.select_stmt

    def of_type(self, name: str) -> list[Any]:
        """Every node of a type, e.g. `SelectStmt`, outermost first."""
        return self.by_type.get(name, [])

    def calls(self, *names: str) -> list[Any]:
        """Every call of one of these functions, whatever schema it is written with."""
        return [call for call in self.of_type("FuncCall") if call.funcname[-1].string.sval in names]


def read(sql: str) -> Statement:
    """Parse a text. Raises SqlSyntaxError."""
    try:
        parsed = postgast.parse(sql)
    except postgast.PgQueryError as error:
        raise SqlSyntaxError(str(error)) from error
    by_type: dict[str, list[Any]] = {}
    waiting = [parsed]
    while waiting:  # a stack, not recursion: a gold has hundreds of nodes, an authoring thousands of golds
        node = waiting.pop()
        by_type.setdefault(node.DESCRIPTOR.name, []).append(node)
        below: list[Any] = []
        for field, value in node.ListFields():
            if field.message_type is not None:
                below.extend(value if field.is_repeated else (value,))
        waiting.extend(reversed(below))
    return Statement(parsed, by_type)


ORDERED_AGGREGATES = (
    *("array_agg", "string_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "xmlagg", "mode"),
)


def depends_on_order(statement: Statement) -> bool:
    """Whether its rows may change with the order in which tables are read: it keeps, numbers or chains rows."""
    selects = statement.of_type("SelectStmt")
    return bool(
        any(select.HasField("limit_count") or select.HasField("limit_offset") for select in selects)
        or any(node.WhichOneof("node") is not None for select in selects for node in select.distinct_clause)
        or any(call.HasField("over") for call in statement.of_type("FuncCall"))
        or statement.calls(*ORDERED_AGGREGATES)
    )


def tables_of(statement: Statement) -> frozenset[str]:
    """The tables it reads; names of its CTEs left out."""
    named = {query.ctename for query in statement.of_type("CommonTableExpr")}
    tables = statement.of_type("RangeVar")
    return frozenset(table.relname for table in tables if table.schemaname or table.relname not in named)


def tie_probe(statement: Statement) -> str | None:
    """The statement with every LIMIT keeping ties and every row_number a rank; None where it has neither.

    A LIMIT over rows that show nothing but their sort keys is left: whichever of the equal rows it keeps. When the
    probe returns other rows than the original on some seed, the original's result rests on how ties fell. The
    statement's tree is changed: read it again to go on with it.
    """
    changed, options = False, postgast.pg_query_pb2
    for select in statement.of_type("SelectStmt"):
        counts = select.limit_option == options.LIMIT_OPTION_COUNT and select.HasField("limit_count")
        if counts and select.sort_clause and not _ties_are_alike(select):
            select.limit_option = options.LIMIT_OPTION_WITH_TIES
            changed = True
    for call in statement.calls("row_number"):
        call.funcname[-1].string.sval = "rank"
        changed = True
    if not changed:
        return None
    text: str = postgast.deparse(statement.tree)
    return text


def _ties_are_alike(select: Any) -> bool:
    """Whether every output is a sort key, so that rows which tie are equal."""
    keys = {_text_of(sort.sort_by.node) for sort in select.sort_clause}
    outputs = [target.res_target for target in select.target_list]
    return bool(outputs) and all(
        keys & {_text_of(output.val), output.name, str(place)} for place, output in enumerate(outputs, start=1)
    )


def _text_of(node: Any) -> str:
    """An expression's canonical text."""
    messages = postgast.pg_query_pb2
    select = messages.SelectStmt(target_list=[messages.Node(res_target=messages.ResTarget(val=node))])
    raw = messages.RawStmt(stmt=messages.Node(select_stmt=select))
    text: str = postgast.deparse(messages.ParseResult(version=180004, stmts=[raw]))
    return text.removeprefix("SELECT ")
