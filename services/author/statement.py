"""Facts about one SQL statement, read from its parse tree. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import postgast

from shared.sql import SqlSyntaxError


@dataclass(frozen=True)
class Statement:
    """A parsed statement, its nodes sorted by type."""

    tree: Any
    by_type: dict[str, list[Any]]

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
    for node in _nodes(parsed):
        by_type.setdefault(node.DESCRIPTOR.name, []).append(node)
    return Statement(parsed, by_type)


def _nodes(message: Any) -> Iterator[Any]:
    """The protobuf message and every message below it, outermost first."""
    yield message
    for _, value in message.ListFields():
        if hasattr(value, "ListFields"):
            yield from _nodes(value)
        elif not isinstance(value, str | bytes | int | float):
            for element in value:  # no list of scalars occurs in a parse tree
                yield from _nodes(element)


def tie_probe(statement: Statement) -> str | None:
    """The statement with every LIMIT keeping ties and every row_number a rank; None where it has neither.

    When it returns other rows than the original on some seed, the original's result rests on how ties fell. The
    statement's tree is changed: read it again to go on with it.
    """
    changed, options = False, postgast.pg_query_pb2
    for select in statement.of_type("SelectStmt"):
        if select.limit_option == options.LIMIT_OPTION_COUNT and select.HasField("limit_count") and select.sort_clause:
            select.limit_option = options.LIMIT_OPTION_WITH_TIES
            changed = True
    for call in statement.calls("row_number"):
        call.funcname[-1].string.sval = "rank"
        changed = True
    if not changed:
        return None
    text: str = postgast.deparse(statement.tree)
    return text
