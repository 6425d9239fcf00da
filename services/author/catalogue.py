"""What a schema says of itself: tables, columns, types, keys, rows of its main seed. Parsed, not queried."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import postgast

from services.author.seed_rows import Row, rows_of

SERIAL_TYPES = {"serial", "bigserial", "smallserial", "serial4", "serial8", "serial2"}


class Kind(StrEnum):
    """A column's type, as far as composing queries needs it."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    OTHER = "other"


_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8", *SERIAL_TYPES), Kind.INTEGER),
    "numeric": Kind.DECIMAL,
    **dict.fromkeys(("float4", "float8"), Kind.FLOAT),
    **dict.fromkeys(("text", "varchar", "bpchar"), Kind.TEXT),
    "bool": Kind.BOOLEAN,
    "date": Kind.DATE,
    **dict.fromkeys(("timestamp", "timestamptz"), Kind.TIMESTAMP),
}


@dataclass(frozen=True)
class Column:
    """One column of one table."""

    table: str
    name: str
    kind: Kind
    nullable: bool
    unique: bool
    """No two rows share a value: a primary key or UNIQUE of this column alone."""


@dataclass(frozen=True)
class ForeignKey:
    """A reference of one column to one column."""

    table: str
    column: str
    references: str
    referenced: str


@dataclass(frozen=True)
class Table:
    """One table with the rows of the main seed."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    rows: tuple[Row, ...] = field(repr=False, compare=False)

    def column(self, name: str) -> Column:
        """The column of that name. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name} has no column {name}")

    @property
    def key(self) -> Column | None:
        """The primary key where it is one column."""
        return self.column(self.primary_key[0]) if len(self.primary_key) == 1 else None


@dataclass(frozen=True)
class Catalogue:
    """A schema."""

    tables: dict[str, Table]
    foreign_keys: tuple[ForeignKey, ...]

    def column(self, table: str, name: str) -> Column:
        """The column of that name. Raises KeyError."""
        return self.tables[table].column(name)

    def is_key(self, column: Column) -> bool:
        """Whether the column identifies a row here or elsewhere: part of a primary or foreign key."""
        return column.name in self.tables[column.table].primary_key or any(
            key.table == column.table and key.column == column.name for key in self.foreign_keys
        )


@dataclass
class _Draft:
    """A table while its definition is read."""

    columns: list[tuple[str, Kind]] = field(default_factory=list)
    not_null: set[str] = field(default_factory=set)
    unique: set[str] = field(default_factory=set)
    primary_key: tuple[str, ...] = ()
    references: list[tuple[str, str, str]] = field(default_factory=list)
    """Column, referenced table, referenced column ("" for its primary key)."""


def read_catalogue(schema_sql: str, seed_sql: str) -> Catalogue:
    """The catalogue of a bundle. Raises postgast.PgQueryError where the SQL does not parse."""
    drafts: dict[str, _Draft] = {}
    for raw in postgast.parse(schema_sql).stmts:
        statement = raw.stmt
        if statement.HasField("create_stmt"):
            draft = drafts[statement.create_stmt.relation.relname] = _Draft()
            for element in statement.create_stmt.table_elts:
                if element.HasField("column_def"):
                    _read_column(draft, element.column_def)
                elif element.HasField("constraint"):
                    _read_constraint(draft, element.constraint, _strings(element.constraint.keys))
        elif statement.HasField("alter_table_stmt") and statement.alter_table_stmt.relation.relname in drafts:
            draft = drafts[statement.alter_table_stmt.relation.relname]
            for command in statement.alter_table_stmt.cmds:
                definition = getattr(command.alter_table_cmd, "def")
                if definition.HasField("constraint"):
                    _read_constraint(draft, definition.constraint, _strings(definition.constraint.keys))
    rows = rows_of(seed_sql, {name: [column for column, _ in draft.columns] for name, draft in drafts.items()})
    tables = {name: _table(name, draft, rows.get(name, [])) for name, draft in drafts.items()}
    return Catalogue(tables, tuple(_foreign_keys(drafts)))


def _read_column(draft: _Draft, definition: Any) -> None:
    type_name = definition.type_name
    base = type_name.names[-1].string.sval
    draft.columns.append((definition.colname, Kind.OTHER if type_name.array_bounds else _KINDS.get(base, Kind.OTHER)))
    if base in SERIAL_TYPES:
        draft.not_null.add(definition.colname)
    for node in definition.constraints:
        _read_constraint(draft, node.constraint, [definition.colname])


def _read_constraint(draft: _Draft, constraint: Any, columns: list[str]) -> None:
    kind = postgast.pg_query_pb2.ConstrType.Name(constraint.contype)
    if kind == "CONSTR_PRIMARY":
        draft.primary_key = tuple(columns)
        draft.not_null.update(columns)
        if len(columns) == 1:
            draft.unique.add(columns[0])
    elif kind == "CONSTR_UNIQUE" and len(columns) == 1:
        draft.unique.add(columns[0])
    elif kind in ("CONSTR_NOTNULL", "CONSTR_IDENTITY"):
        draft.not_null.update(columns)
    elif kind == "CONSTR_FOREIGN":
        referencing = _strings(constraint.fk_attrs) or columns
        referenced = _strings(constraint.pk_attrs) or [""]
        if len(referencing) == len(referenced) == 1:
            draft.references.append((referencing[0], constraint.pktable.relname, referenced[0]))


def _strings(nodes: Any) -> list[str]:
    return [node.string.sval for node in nodes]


def _table(name: str, draft: _Draft, rows: list[Row]) -> Table:
    columns = tuple(
        Column(name, column, kind, column not in draft.not_null, column in draft.unique)
        for column, kind in draft.columns
    )
    return Table(name, columns, draft.primary_key, tuple(rows))


def _foreign_keys(drafts: dict[str, _Draft]) -> Iterator[ForeignKey]:
    for name, draft in drafts.items():
        for column, table, referenced in draft.references:
            target = drafts.get(table)
            if target is None:
                continue
            if not referenced and len(target.primary_key) != 1:
                continue
            yield ForeignKey(name, column, table, referenced or target.primary_key[0])
