"""Reads a database's tables, constraints and rows from Postgres' own catalogs. Blocking I/O."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from services.verifier.suites.tables import Column, Contents, ForeignKey, Kind, Row, Table

Connection = psycopg.Connection[tuple[Any, ...]]

_COLUMNS = """
SELECT c.oid::int8, CASE n.nspname WHEN 'public' THEN c.relname ELSE n.nspname || '.' || c.relname END, a.attnum::int,
       a.attname::text, format_type(a.atttypid, a.atttypmod), b.typname::text, b.typcategory::text,
       NOT (a.attnotnull OR t.typnotnull) AS nullable,
       (SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = b.oid),
       pg_get_expr(d.adbin, d.adrelid)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
ORDER BY c.oid, a.attnum
"""
_KEYS = """
SELECT indrelid::int8, indkey::int2[] FROM pg_index
WHERE indisunique AND indpred IS NULL AND 0 <> ALL (indkey::int2[]) ORDER BY indrelid, indexrelid
"""
_FOREIGN_KEYS = """
SELECT conrelid::int8, conkey, confrelid::int8, confkey FROM pg_constraint
WHERE contype = 'f' AND conparentid = 0 ORDER BY conrelid, oid
"""

_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8"), Kind.INTEGER),
    **dict.fromkeys(("numeric", "float4", "float8"), Kind.DECIMAL),
    "date": Kind.DATE,
    **dict.fromkeys(("timestamp", "timestamptz"), Kind.TIMESTAMP),
    "bool": Kind.BOOLEAN,
}


_COMPUTED = re.compile(r"^(?!nextval\().*\(|CURRENT_|LOCALTIME", re.DOTALL)


def _kind(type_name: str, category: str) -> Kind:
    return _KINDS.get(type_name) or {"S": Kind.TEXT, "E": Kind.CHOICE}.get(category, Kind.OTHER)


def read_tables(connection: Connection, written: Mapping[str, Sequence[str]] | None = None) -> list[Table]:
    """Every table with the columns an INSERT fills, without rows; in the order of creation.

    `written`: where it names a table, the columns that the main seed fills. Of the others those are left out whose
    default computes a value when a row is loaded (the time, something random; not the next of a sequence).
    Raises psycopg.Error.
    """
    found = connection.execute(_COLUMNS).fetchall()
    names: dict[int, str] = {}
    columns: dict[int, list[Column]] = {}
    positions: dict[tuple[int, int], int] = {}
    for oid, table, number, name, type_name, base, category, nullable, choices, default in found:
        names[oid] = table
        listed = columns.setdefault(oid, [])
        is_written = written is None or name in written.get(table, [name])
        if is_written or not _COMPUTED.search(default or ""):
            positions[oid, number] = len(listed)
            listed.append(Column(name, _kind(base, category), type_name, nullable, tuple(choices or ())))

    def indices(oid: int, numbers: Sequence[int]) -> tuple[int, ...] | None:
        known = [positions.get((oid, number)) for number in numbers]
        return None if None in known else tuple(index for index in known if index is not None)

    tables = {oid: Table(names[oid], tuple(listed)) for oid, listed in columns.items()}
    for oid, numbers in connection.execute(_KEYS).fetchall():
        key = indices(oid, numbers)
        if oid in tables and key is not None:
            tables[oid] = replace(tables[oid], keys=(*tables[oid].keys, key))
    for oid, numbers, parent, parent_numbers in connection.execute(_FOREIGN_KEYS).fetchall():
        own, referenced = indices(oid, numbers), indices(parent, parent_numbers)
        if oid in tables and parent in tables and own is not None and referenced is not None:
            foreign_key = ForeignKey(own, names[parent], referenced)
            tables[oid] = replace(tables[oid], foreign_keys=(*tables[oid].foreign_keys, foreign_key))
    return list(tables.values())


def table_identifier(name: str) -> sql.Identifier:
    """A table's name, quoted; `schema.table` is two parts."""
    return sql.Identifier(*name.split(".", 1))


def read_rows(connection: Connection, tables: Sequence[Table]) -> Contents:
    """All rows, in the order in which they were inserted. Raises psycopg.Error."""
    contents: Contents = {}
    for table in tables:
        values = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(c.name)) for c in table.columns)
        query = sql.SQL("SELECT {} FROM {} ORDER BY tableoid, ctid").format(values, table_identifier(table.name))
        rows: list[Row] = connection.execute(query).fetchall() if table.columns else []
        contents[table.name] = rows
    return contents
