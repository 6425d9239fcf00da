"""A domain bundle made from a live Postgres: its schema by pg_dump, a sample of its rows, personal columns masked."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from shared.bundles.files import Origin, check_target, write_folder
from shared.bundles.from_sql import SplitSql, split_sql
from shared.bundles.live_connection import STATEMENT_SECONDS, Live, dump_schema, open_snapshot, table_pattern
from shared.bundles.live_sample import Bounds, Cells, Sample, Sampler
from shared.bundles.live_schema import LiveColumn, LiveTable, read_tables
from shared.bundles.masking import Masker
from shared.bundles.parts import LOADABLE_EXTENSIONS
from shared.bundles.personal import Finding, PersonalKind, personal_kind
from shared.domain import BundleError
from shared.sql import literal

_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class Wanted:
    """What to take of the database."""

    bounds: Bounds
    schemas: Sequence[str] = ()
    """Only these; all where empty."""
    excluded: Sequence[str] = ()
    """Tables to leave out: `table` or `schema.table`."""
    allowed: Sequence[str] = ()
    """`table.column` (or `schema.table.column`) that look personal and are taken as they are."""
    statement_seconds: float = STATEMENT_SECONDS


@dataclass(frozen=True)
class Made:
    """What became of it."""

    rows: dict[str, int]
    """Table to rows taken."""
    masked: tuple[Finding, ...]
    allowed: tuple[Finding, ...]
    notes: tuple[str, ...]
    """What a person should know of the sample."""


def bundle_from_database(name: str, dsn: str, wanted: Wanted, target: Path) -> Made:
    """Make the bundle folder `target`. All of it appears, or nothing.

    Raises BundleError: the folder exists, the name is none, the database cannot be reached or read, an option names
    what is not there. No error shows a password.
    """
    check_target(name, target)
    with open_snapshot(dsn, wanted.statement_seconds) as live:
        try:
            tables, unreadable = _tables(live, wanted)
            sample = Sampler(live, tables, wanted.bounds).draw()
            masked = _mask(tables, sample, wanted)
            parts, absent = _split(live, wanted, tables, unreadable, sample)
        except psycopg.Error as error:
            raise BundleError(f"--from-dsn: {live.message(error)}") from None
        version = live.connection.info.server_version // 10_000
    notes = [*_notes(sample, tables, unreadable), *absent]
    bounds = wanted.bounds
    origin = Origin(
        f"a live PostgreSQL {version} database",
        sampled=[
            f"At most {bounds.rows_per_table} rows a table and {bounds.total_rows} in all, seed {bounds.seed}; every "
            "reference leads to a row that was taken.",
            *notes,
        ],
        masked=masked.findings,
        allowed=[found.column for found in masked.allowed],
        dropped=[what.partition(": ")[2] for what in parts.dropped],
    )
    write_folder(name, parts.schema_sql, parts.seed_sql, origin, target)
    counts = {table.label: len(sample.rows[table.oid]) for table in tables}
    return Made(counts, tuple(masked.findings), tuple(masked.allowed), tuple(notes))


def _tables(live: Live, wanted: Wanted) -> tuple[list[LiveTable], list[LiveTable]]:
    tables, unreadable = read_tables(live.connection, wanted.schemas)
    known = {name for table in [*tables, *unreadable] for name in (table.label, f"{table.schema}.{table.name}")}
    if strange := [name for name in wanted.excluded if name not in known]:
        raise BundleError(f"--exclude: there is no table {', '.join(strange)}")
    tables = [table for table in tables if not {table.label, f"{table.schema}.{table.name}"} & set(wanted.excluded)]
    if not tables:
        raise BundleError(f"--from-dsn: no table may be read in {list(wanted.schemas) or 'any schema'}")
    taken = {table.oid for table in tables}
    for table in tables:
        table.references = [key for key in table.references if key.target in taken]
    columns = {f"{name}.{c.name}" for t in tables for name in (t.label, f"{t.schema}.{t.name}") for c in t.columns}
    if strange := [name for name in wanted.allowed if name not in columns]:
        raise BundleError(f"--allow: there is no column {', '.join(strange)}: write table.column")
    return tables, unreadable


@dataclass
class _Masked:
    """What was masked, and what looked personal and was let through."""

    findings: list[Finding] = field(default_factory=list)
    allowed: list[Finding] = field(default_factory=list)


def _mask(tables: Sequence[LiveTable], sample: Sample, wanted: Wanted) -> _Masked:
    """Mask the sample in place. Columns that refer to each other are masked alike, or not at all."""
    found: dict[tuple[int, str], tuple[PersonalKind, str]] = {}
    columns: dict[tuple[int, str], tuple[LiveTable, LiveColumn]] = {}
    for table in tables:
        for column in table.columns:
            if column.is_generated:
                continue
            columns[table.oid, column.name] = (table, column)
            values = [row[column.name] for row in sample.rows[table.oid]]
            kind = personal_kind(table.name, column.name, column.base_type, values)
            if kind is not None:
                found[table.oid, column.name] = kind
    allowed = {
        place
        for place, (table, column) in columns.items()
        if {f"{table.label}.{column.name}", f"{table.schema}.{table.name}.{column.name}"} & set(wanted.allowed)
    }
    masker, done = Masker(), _Masked()
    for group in _linked(tables, columns):
        kinds = [found[place] for place in group if place in found]
        if not kinds:
            continue
        for place in group:
            table, column = columns[place]
            finding = Finding(f"{table.label}.{column.name}", *found.get(place, (kinds[0][0], "reference")))
            if allowed & set(group):
                done.allowed.append(finding)
                continue
            done.findings.append(finding)
            mask = masker.column(kinds[0][0], column.base_type)
            for row in sample.rows[table.oid]:
                value = row[column.name]
                row[column.name] = None if value is None else mask(value)
    return done


def _linked(tables: Sequence[LiveTable], columns: Mapping[tuple[int, str], object]) -> Iterator[list[tuple[int, str]]]:
    """Every column in a group with those that foreign keys tie it to, in the tables' order."""
    group = {place: [place] for place in columns}
    for table in tables:
        for key in table.references:
            for column, target in zip(key.columns, key.target_columns, strict=True):
                here, there = (table.oid, column.name), (key.target, target)
                if here in group and there in group and group[here] is not group[there]:
                    group[here] += group[there]
                    for place in group[there]:
                        group[place] = group[here]
    seen: set[int] = set()
    for members in group.values():
        if id(members) not in seen:
            seen.add(id(members))
            yield sorted(members, key=list(columns).index)


def _split(
    live: Live,
    wanted: Wanted,
    tables: Sequence[LiveTable],
    unreadable: Sequence[LiveTable],
    sample: Sample,
) -> tuple[SplitSql, list[str]]:
    """The dump with the sample where pg_dump puts rows, sorted into schema and seed."""
    left_out = [table_pattern(table.schema, table.name) for table in unreadable]
    left_out += _excluded_patterns(wanted)
    before = dump_schema(live, "pre-data", wanted.schemas, left_out)
    after = dump_schema(live, "post-data", wanted.schemas, left_out)
    rows = "".join(_insert(table, sample.rows[table.oid]) for table in tables)
    strange = [
        (f"{table.label}.{column.name}", column)
        for table in tables
        for column in table.columns
        if column.extension and column.extension not in LOADABLE_EXTENSIONS
    ]
    absent_types = frozenset(column.base_type.removeprefix("_") for _, column in strange)
    parts = split_sql(f"{before}\n{rows}\n{after}", lean=True, absent_types=absent_types)
    notes = [f"{label}: kept as text, for the sandbox has no extension {c.extension}." for label, c in strange]
    return parts, notes


def _excluded_patterns(wanted: Wanted) -> Iterable[str]:
    for name in wanted.excluded:
        schema, _, table = name.rpartition(".")
        yield table_pattern(schema or "public", table)


def _insert(table: LiveTable, rows: Sequence[Cells]) -> str:
    """One INSERT, a row a line."""
    if not rows:
        return ""
    columns = [column for column in table.columns if not column.is_generated]
    always = any(column.is_identity_always for column in columns)
    head = f"INSERT INTO {table.sql} ({', '.join(column.sql for column in columns)})"
    lines = ["(" + ", ".join(_written(column, row[column.name]) for column in columns) + ")" for row in rows]
    return f"{head}{' OVERRIDING SYSTEM VALUE' if always else ''} VALUES\n" + ",\n".join(lines) + ";\n"


def _written(column: LiveColumn, value: str | None) -> str:
    if value is not None and (column.is_boolean or (column.is_number and _NUMBER.fullmatch(value))):
        return value
    return literal(value)


def _notes(sample: Sample, tables: Sequence[LiveTable], unreadable: Sequence[LiveTable]) -> Iterator[str]:
    if sample.cut_references:
        yield f"{sample.cut_references} references became NULL: the rows they lead to are beyond the bounds."
    if sample.left_out:
        yield f"{sample.left_out} rows were left out: they need rows beyond the bounds."
    for table in unreadable:
        yield f"{table.label}: no right to read it; it is not in the bundle."
    for table in tables:
        if not sample.rows[table.oid] and table.rows > 0:
            yield f"{table.label}: none of its rows fits the bounds."
    yield from (f"Not read to the end: {note}" for note in sample.notes)
