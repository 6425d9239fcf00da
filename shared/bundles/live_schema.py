"""The tables of a live database, from its catalogs: columns, keys, sizes, which columns an index finds."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg

from shared.sql import identifier

_TABLES = r"""
WITH RECURSIVE leaf AS (
  SELECT c.oid AS root, c.oid, c.relkind, c.reltuples FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'p')
  UNION ALL
  SELECT leaf.root, c.oid, c.relkind, c.reltuples FROM leaf
  JOIN pg_catalog.pg_inherits i ON i.inhparent = leaf.oid JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
  WHERE leaf.relkind = 'p'
), size AS (
  SELECT root, sum(CASE WHEN relkind <> 'r' THEN 0 WHEN reltuples >= 0 THEN reltuples
                        ELSE pg_catalog.pg_relation_size(oid) / 100 END) AS rows FROM leaf GROUP BY root
)
SELECT c.oid, n.nspname, c.relname, c.relkind = 'p', size.rows::float8,
       pg_catalog.has_table_privilege(c.oid, 'SELECT') AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN size ON size.root = c.oid
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND n.nspname NOT LIKE 'pg\_%%' AND n.nspname <> 'information_schema'
  AND (cardinality(%(schemas)s::text[]) = 0 OR n.nspname = ANY(%(schemas)s::text[]))
  AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
ORDER BY n.nspname, c.relname
"""
_COLUMNS = """
WITH RECURSIVE base AS (
  SELECT t.oid AS top, t.oid, t.typname, t.typcategory, t.typbasetype FROM pg_catalog.pg_type t
  UNION ALL
  SELECT base.top, t.oid, t.typname, t.typcategory, t.typbasetype FROM base
  JOIN pg_catalog.pg_type t ON t.oid = base.typbasetype
)
SELECT a.attrelid, a.attnum, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), base.typname, base.typcategory,
       a.attnotnull, a.attgenerated <> '', a.attidentity = 'a', e.extname
FROM pg_catalog.pg_attribute a
JOIN base ON base.top = a.atttypid AND base.typbasetype = 0
LEFT JOIN pg_catalog.pg_type element ON element.oid = base.oid
LEFT JOIN pg_catalog.pg_depend d ON d.deptype = 'e' AND d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
  AND d.objid = CASE WHEN element.typelem <> 0 AND element.typcategory = 'A' THEN element.typelem ELSE base.oid END
LEFT JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT conrelid, contype::text, conkey, confrelid, confkey FROM pg_catalog.pg_constraint
WHERE conrelid = ANY(%s) AND contype IN ('p', 'f') AND conparentid = 0 ORDER BY conrelid, conname
"""
_INDEXES = """
SELECT i.indrelid, i.indkey::int2[] FROM pg_catalog.pg_index i
WHERE i.indrelid = ANY(%s) AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indrelid, i.indexrelid
"""


@dataclass(frozen=True)
class LiveColumn:
    """One column."""

    name: str
    type_sql: str
    """Its type as SQL, with its length: `character` alone would be one character."""
    base_type: str
    """`pg_type`'s name of the type below domains; an array's begins with `_`."""
    is_number: bool
    is_boolean: bool
    not_null: bool
    is_generated: bool
    """Computed by the table: no INSERT names it."""
    is_identity_always: bool
    extension: str | None
    """The extension its type comes from."""

    @property
    def sql(self) -> str:
        """The name, quoted where needed."""
        return identifier(self.name)


@dataclass(frozen=True)
class Reference:
    """A foreign key; columns pairwise."""

    columns: tuple[LiveColumn, ...]
    target: int
    """oid of the referenced table."""
    target_columns: tuple[str, ...]

    @property
    def is_mandatory(self) -> bool:
        """None of its columns may be NULL."""
        return all(column.not_null for column in self.columns)


@dataclass
class LiveTable:
    """One table; a partitioned one with all its parts."""

    oid: int
    schema: str
    name: str
    is_partitioned: bool
    rows: float
    """Estimated, as of the last ANALYZE."""
    columns: list[LiveColumn] = field(default_factory=list)
    primary_key: tuple[str, ...] = ()
    references: list[Reference] = field(default_factory=list)
    indexes: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """`orders`, or `sales.orders` outside `public`; not quoted."""
        return self.name if self.schema == "public" else f"{self.schema}.{self.name}"

    @property
    def sql(self) -> str:
        """Its name in SQL, with the schema."""
        return f"{identifier(self.schema)}.{identifier(self.name)}"

    @property
    def from_sql(self) -> str:
        """What a FROM clause says to get its own rows."""
        return self.sql if self.is_partitioned else f"ONLY {self.sql}"

    def finds(self, columns: Sequence[LiveColumn]) -> bool:
        """Whether an index finds rows by exactly these columns, in any order, as its first ones."""
        names = {column.name for column in columns}
        return any(set(index[: len(names)]) == names for index in self.indexes)


def read_tables(connection: psycopg.Connection, schemas: Sequence[str]) -> tuple[list[LiveTable], list[LiveTable]]:
    """The readable tables of these schemas (all where empty), and those that may not be read."""
    found = connection.execute(_TABLES, {"schemas": list(schemas)}).fetchall()
    tables = {oid: LiveTable(oid, schema, name, parted, rows or 0.0) for oid, schema, name, parted, rows, _ in found}
    readable = {oid for oid, *_, may in found if may}
    oids = list(tables)
    by_number: dict[tuple[int, int], LiveColumn] = {}
    for oid, number, name, type_sql, base, category, not_null, generated, identity, extension in connection.execute(
        _COLUMNS, (oids,)
    ):
        flags = (category == "N", category == "B", not_null, generated, identity)
        column = by_number[oid, number] = LiveColumn(name, type_sql, base, *flags, extension)
        tables[oid].columns.append(column)
    for oid, kind, numbers, target, target_numbers in connection.execute(_KEYS, (oids,)):
        columns = tuple(by_number[oid, number] for number in numbers)
        if kind == "p":
            tables[oid].primary_key = tuple(column.name for column in columns)
        elif target in tables:
            names = tuple(by_number[target, number].name for number in target_numbers)
            tables[oid].references.append(Reference(columns, target, names))
    for oid, numbers in connection.execute(_INDEXES, (oids,)):
        if all(number > 0 for number in numbers):
            tables[oid].indexes.append(tuple(by_number[oid, number].name for number in numbers))
    return [tables[oid] for oid in oids if oid in readable], [tables[oid] for oid in oids if oid not in readable]
