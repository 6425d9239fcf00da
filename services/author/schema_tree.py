"""What a schema's text declares: tables, columns, keys, comments. Read from the parse tree; nothing is executed."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

import postgast

from shared.sql import relation_name

nodes: Final = postgast.pg_query_pb2
SERIAL_TYPES = {"serial", "bigserial", "smallserial", "serial4", "serial8", "serial2"}

_SPELLED = re.compile(rb'"(?:[^"]|"")*"|[^\s(),;]+')
_LINE_COMMENT = re.compile(rb"--[ \t]*([^\n]*)")


@dataclass
class ColumnDraft:
    """One column as declared."""

    name: str
    type_name: str
    """The last part of its type's name as libpg_query normalises it: `int4`, `varchar`, an enum's own name; `[]` ends
    an array's."""
    spelled: str
    """The name as the schema's author wrote it, letter case kept."""
    comment: str = ""
    not_null: bool = False
    has_default: bool = False
    is_serial: bool = False
    """Filled from a sequence where an INSERT leaves it out."""


@dataclass
class TableDraft:
    """One table as declared."""

    spelled: str
    parts: tuple[str, ...]
    """Schema, unless it is public, and name."""
    columns: dict[str, ColumnDraft] = field(default_factory=dict)
    unique: set[str] = field(default_factory=set)
    primary_key: tuple[str, ...] = ()
    references: list[tuple[str, str, str]] = field(default_factory=list)
    """Column, referenced table, referenced column ("" for its primary key)."""
    partition_of: str | None = None
    """The table whose rows its rows are."""


@dataclass
class SchemaTree:
    """Everything declared. Tables outside `public` are called `schema.table`."""

    tables: dict[str, TableDraft] = field(default_factory=dict)
    base_types: dict[str, str] = field(default_factory=dict)
    """Own types: a domain to its base type, an enum to `enum`."""

    def base_type(self, name: str) -> str:
        """The built-in type below domains."""
        while name in self.base_types:
            name = self.base_types[name]
        return name


def read_schema(schema_sql: str) -> SchemaTree:
    """Raises postgast.PgQueryError where the SQL does not parse."""
    tree, data = SchemaTree(), schema_sql.encode()
    for raw in postgast.parse(schema_sql).stmts:
        kind = raw.stmt.WhichOneof("node")
        statement = getattr(raw.stmt, kind)
        if kind == "create_stmt":
            _read_table(tree, statement, data)
        elif kind == "alter_table_stmt":
            _read_alteration(tree, statement)
        elif kind == "create_enum_stmt":
            tree.base_types[statement.type_name[-1].string.sval] = "enum"
        elif kind == "create_domain_stmt":
            tree.base_types[statement.domainname[-1].string.sval] = _type_name(statement.type_name)
        elif kind == "comment_stmt":
            _read_comment(tree, statement)
    return tree


def _read_table(tree: SchemaTree, statement: Any, data: bytes) -> None:
    relation = statement.relation
    spelled = data[relation.location :]
    if relation.schemaname:
        spelled = spelled[spelled.index(b".") + 1 :]
    draft = TableDraft(_spelled(spelled), ((relation.schemaname,) if _is_own(relation) else ()) + (relation.relname,))
    for parent in statement.inh_relations:
        inherited = tree.tables.get(relation_name(parent.range_var))
        if statement.HasField("partbound"):
            draft.partition_of = relation_name(parent.range_var)
        draft.columns |= inherited.columns if inherited else {}
    tree.tables[relation_name(relation)] = draft
    for element in statement.table_elts:
        if element.HasField("column_def"):
            _read_column(draft, element.column_def, data)
        elif element.HasField("constraint"):
            _read_constraint(draft, element.constraint, _strings(element.constraint.keys))


def _is_own(relation: Any) -> bool:
    return relation.schemaname not in ("", "public")


def _read_alteration(tree: SchemaTree, statement: Any) -> None:
    draft = tree.tables.get(relation_name(statement.relation))
    for node in statement.cmds:
        command = node.alter_table_cmd
        definition = getattr(command, "def")
        if draft is None:
            continue
        if definition.HasField("constraint"):
            keys = _strings(definition.constraint.keys) or [command.name]
            _read_constraint(draft, definition.constraint, keys)
        elif command.subtype == nodes.AT_SetNotNull:
            draft.columns[command.name].not_null = True
        elif command.subtype == nodes.AT_ColumnDefault and command.name in draft.columns:
            calls = [call.funcname[-1].string.sval for call in postgast.find_nodes(definition, nodes.FuncCall)]
            draft.columns[command.name].has_default = True
            draft.columns[command.name].is_serial = "nextval" in calls
        elif command.subtype == nodes.AT_AttachPartition:
            part = tree.tables.get(relation_name(definition.partition_cmd.name))
            if part is not None:
                part.partition_of = relation_name(statement.relation)


def _read_column(draft: TableDraft, definition: Any, data: bytes) -> None:
    here = data[definition.location :]
    line = _LINE_COMMENT.search(here.split(b"\n", 1)[0])
    type_name = _type_name(definition.type_name)
    column = ColumnDraft(definition.colname, type_name, _spelled(here), line[1].decode().strip() if line else "")
    column.is_serial = type_name in SERIAL_TYPES
    column.not_null = column.has_default = column.is_serial
    draft.columns[definition.colname] = column
    for node in definition.constraints:
        _read_constraint(draft, node.constraint, [definition.colname])


def _read_constraint(draft: TableDraft, constraint: Any, columns: list[str]) -> None:
    kind = constraint.contype
    own = [draft.columns[name] for name in columns if name in draft.columns]
    if kind == nodes.CONSTR_PRIMARY:
        draft.primary_key = tuple(columns)
    if kind in (nodes.CONSTR_NOTNULL, nodes.CONSTR_IDENTITY, nodes.CONSTR_PRIMARY):
        for column in own:
            column.not_null = True
    if kind in (nodes.CONSTR_DEFAULT, nodes.CONSTR_IDENTITY, nodes.CONSTR_GENERATED):
        for column in own:
            column.has_default = True
            column.is_serial |= kind == nodes.CONSTR_IDENTITY
    if kind in (nodes.CONSTR_PRIMARY, nodes.CONSTR_UNIQUE) and len(columns) == 1:
        draft.unique.add(columns[0])
    if kind == nodes.CONSTR_FOREIGN:
        referencing = _strings(constraint.fk_attrs) or columns
        referenced = _strings(constraint.pk_attrs) or [""]
        if len(referencing) == len(referenced) == 1:
            draft.references.append((referencing[0], relation_name(constraint.pktable), referenced[0]))


def _read_comment(tree: SchemaTree, statement: Any) -> None:
    """COMMENT ON COLUMN."""
    path = _strings(statement.object.list.items)
    if statement.objtype == nodes.OBJECT_COLUMN and len(path) > 1:
        table = tree.tables.get(".".join(path[-3:-1]).removeprefix("public."))
        if table is not None and path[-1] in table.columns:
            table.columns[path[-1]].comment = statement.comment


def _type_name(type_name: Any) -> str:
    name: str = type_name.names[-1].string.sval
    return f"{name}[]" if type_name.array_bounds else name


def _spelled(here: bytes) -> str:
    """The identifier that begins here, without its quotes."""
    found = _SPELLED.match(here)
    text = found[0].decode() if found else ""
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _strings(items: Any) -> list[str]:
    return [node.string.sval for node in items]
