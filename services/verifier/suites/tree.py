"""Walking Postgres' parse tree (libpg_query's protobuf messages) and telling which table a column is of. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import postgast

pb: Final = postgast.pg_query_pb2

Path = tuple[str, ...]
"""Field names from the innermost enclosing SELECT down to a node, e.g. `("where_clause", "a_expr", "lexpr")`.

What NOT negates is reached by `negated`.
"""

_NOT_ENTERED: Final = frozenset({"type_name", "funcname", "name", "names", "alias", "fields", "coll_clause"})
"""Fields that hold names, not expressions."""


def visit(message: Any, path: Path = ()) -> Iterator[tuple[Any, Path]]:
    """Every message below `message` and itself, innermost first, so that it may be changed while walking."""
    kind = message.DESCRIPTOR.name
    inside = () if kind == "SelectStmt" else path
    negation = kind == "BoolExpr" and message.boolop == pb.NOT_EXPR
    for descriptor, value in message.ListFields():
        if descriptor.name in _NOT_ENTERED or descriptor.message_type is None:
            continue
        for child in list(value) if descriptor.is_repeated else [value]:
            yield from visit(child, (*inside, "negated" if negation else descriptor.name))
    yield message, path


def string(text: str) -> Any:
    """A name's node."""
    return pb.Node(string=pb.String(sval=text))


def last_name(names: Iterable[Any]) -> str:
    """The unqualified name, in lower case."""
    return str(list(names)[-1].string.sval).lower()


def is_constant(node: Any) -> bool:
    """Whether an expression reads no row: no column, sub-query or star below it."""
    reading = {"ColumnRef", "SubLink", "SelectStmt", "A_Star"}
    return all(message.DESCRIPTOR.name not in reading for message, _ in visit(node))


def column_refs(node: Any) -> list[Any]:
    """The column references below a node; those of sub-queries included."""
    return [message for message, _ in visit(node) if message.DESCRIPTOR.name == "ColumnRef"]


class Scope:
    """Which table each name of a statement means. One flat scope: a name that means two tables means none."""

    def __init__(self, statement: Any, columns: Mapping[str, Iterable[str]]) -> None:
        """`columns`: table to its column names. Tables outside `public` are called `schema.table`."""
        self._columns = {table: list(names) for table, names in columns.items()}
        self._tables: dict[str, set[str]] = {}
        ctes = set()
        for message, _ in visit(statement):
            kind = message.DESCRIPTOR.name
            if kind == "CommonTableExpr":
                ctes.add(message.ctename)
            elif kind == "RangeVar":
                table = message.relname if message.schemaname in ("", "public") else _qualified(message)
                self._tables.setdefault(message.alias.aliasname or message.relname, set()).add(table)
            elif kind == "RangeSubselect" and message.alias.aliasname:
                self._tables.setdefault(message.alias.aliasname, set()).add("")
        for names in self._tables.values():
            names -= ctes

    @property
    def tables(self) -> list[str]:
        """The tables of the schema that the statement reads, sorted."""
        return sorted({table for tables in self._tables.values() for table in tables} & self._columns.keys())

    def resolve(self, column_ref: Any) -> tuple[str, str] | None:
        """(table, column), or None where it is not sure."""
        fields = [field.string.sval for field in column_ref.fields if field.HasField("string")]
        if len(fields) != len(column_ref.fields) or not fields:
            return None
        candidates = self._tables.get(fields[-2], set()) if len(fields) > 1 else set(self.tables)
        found = [table for table in sorted(candidates) if fields[-1] in self._columns.get(table, ())]
        return (found[0], fields[-1]) if len(found) == 1 else None


def _qualified(range_var: Any) -> str:
    return f"{range_var.schemaname}.{range_var.relname}"
