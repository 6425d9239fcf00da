"""A bounded, referentially intact sample of a live database's rows, the same for the same seed and rows.

Tables are taken parents first. A table gets rows of its own (a random part of it) and rows that refer to what is
already there (by an index), so that joins find several rows. Then whatever is referred to is fetched, level by level,
as far as the bounds allow. What then misses a row it refers to loses the reference where it may be NULL, else goes.
Nothing reads a large table from end to end: TABLESAMPLE takes pages, keys go through indexes.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import psycopg

from shared.bundles.from_sql import key_order
from shared.bundles.live_connection import Live
from shared.bundles.live_schema import LiveColumn, LiveTable, Reference

Cells = dict[str, str | None]
"""Column to value as text."""

SCANNED_ROWS = 20_000
"""A table of at most so many rows (estimated) is read whole to choose from."""
PAGES_ROWS = 4_000
"""Rows aimed at when choosing from a part of a larger table: some dozens of pages, wherever they lie."""
ROWS_PER_PARENT = 8
"""Rows that refer to one chosen row, at most."""
KEYS_PER_QUERY = 500
LONGEST_VALUE = 2_000
"""Characters of a value that are kept; a longer text is cut, a longer JSON or other value becomes NULL where it may."""
_CUT_TYPES = ("text", "varchar", "bpchar")


@dataclass(frozen=True)
class Bounds:
    """How much is taken."""

    rows_per_table: int
    total_rows: int
    seed: int


@dataclass
class Sample:
    """What was taken."""

    rows: dict[int, list[Cells]]
    """Table oid to rows, in the order of their keys."""
    cut_references: int = 0
    """References set to NULL because the row they led to is beyond the bounds."""
    left_out: int = 0
    """Rows that went because a row they need is beyond the bounds."""
    notes: list[str] = field(default_factory=list)
    """Tables that could not be read, with the cause."""


class Sampler:
    """Draws one sample."""

    def __init__(self, live: Live, tables: Sequence[LiveTable], bounds: Bounds) -> None:
        self._live = live
        self._tables = {table.oid: table for table in tables}
        self._bounds = bounds
        self._taken: dict[int, dict[str, Cells]] = {table.oid: {} for table in tables}
        self._notes: list[str] = []

    def draw(self) -> Sample:
        """Take rows. Raises psycopg.Error when the connection breaks."""
        share = max(1, self._bounds.total_rows // (2 * max(1, len(self._tables))))
        quota = min(max(1, self._bounds.rows_per_table // 2), max(share, 5))
        for table in self._in_order():
            self._take(table, self._referring(table, quota), quota)
            self._take(table, self._own(table, quota), quota)
        for mandatory in (True, False):
            while self._complete(mandatory) or (not mandatory and self._complete(True)):
                pass
        cut, left_out = self._prune()
        rows = {oid: [dict(row) for row in self._sorted(oid)] for oid in self._tables}
        return Sample(rows, cut, left_out, self._notes)

    def _in_order(self) -> list[LiveTable]:
        """Referenced tables first."""
        labels = {table.label: table for table in self._tables.values()}
        keys = [
            (table.label, self._tables[key.target].label)
            for table in self._tables.values()
            for key in table.references
            if key.target in self._tables
        ]
        rank = key_order(list(labels), keys)
        return sorted(labels.values(), key=lambda table: rank[table.label])

    def _room(self, table: LiveTable) -> int:
        total = sum(map(len, self._taken.values()))
        here = self._bounds.rows_per_table - len(self._taken[table.oid])
        return max(0, min(here, self._bounds.total_rows - total))

    def _take(self, table: LiveTable, rows: Iterable[tuple[str, Cells]], most: int) -> int:
        """Add rows until the table holds `most` or a bound is met; how many were new."""
        before = len(self._taken[table.oid])
        room = min(self._room(table), most - before)
        for row_id, cells in rows:
            if room <= 0:
                break
            if row_id not in self._taken[table.oid]:
                self._taken[table.oid][row_id] = cells
                room -= 1
        return len(self._taken[table.oid]) - before

    def _own(self, table: LiveTable, quota: int) -> list[tuple[str, Cells]]:
        """Some rows, whichever they are."""
        lot = f"pg_catalog.md5({self._bounds.seed}::text || {self._identity(table)})"
        if table.rows <= SCANNED_ROWS:
            return self._read(
                table, f"SELECT {self._list(table)} FROM {_escaped(table.from_sql)} t ORDER BY {lot} LIMIT {2 * quota}"
            )
        percent = min(100.0, 100.0 * max(PAGES_ROWS, 4 * quota) / table.rows)
        while True:
            part = f"{_escaped(table.from_sql)} t TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE ({self._bounds.seed})"
            found = self._read(table, f"SELECT {self._list(table)} FROM {part} ORDER BY {lot} LIMIT {2 * quota}")
            if len(found) >= quota or percent >= 5.0:  # pages were empty: the estimate is old
                return found
            percent *= 10

    def _referring(self, table: LiveTable, quota: int) -> list[tuple[str, Cells]]:
        """Rows that refer to rows already taken, of the largest referenced table that an index leads from."""
        usable = [
            key
            for key in table.references
            if key.target != table.oid and self._taken.get(key.target) and table.finds(key.columns)
        ]
        if not usable:
            return []
        key = max(usable, key=lambda key: (self._tables[key.target].rows, [column.name for column in key.columns]))
        parents = [tuple(row[name] for name in key.target_columns) for row in self._lots(key.target)]
        where = " AND ".join(f"t.{_sql(column)} = k.c{n}" for n, column in enumerate(key.columns))
        query = (
            f"SELECT x.* FROM {_unnested(key.columns)} CROSS JOIN LATERAL "
            f"(SELECT {self._list(table)} FROM {_escaped(table.from_sql)} t WHERE {where} LIMIT {ROWS_PER_PARENT}) x"
        )
        return self._read(table, query, parents[: max(1, quota * 2 // 3)])[: max(1, quota * 3 // 4)]

    def _complete(self, mandatory: bool) -> int:
        """Fetch one level of what is referred to and missing; how many rows came."""
        added = 0
        for table in self._tables.values():
            for key in table.references:
                target = self._tables.get(key.target)
                if target is None or key.is_mandatory != mandatory or self._room(target) == 0:
                    continue
                missing = sorted(self._wanted(table, key) - self._present(key))
                if missing:
                    added += self._take(target, self._by_key(target, key, missing), self._bounds.rows_per_table)
        return added

    def _by_key(self, target: LiveTable, key: Reference, wanted: Sequence[tuple[str, ...]]) -> list[tuple[str, Cells]]:
        columns = [next(c for c in target.columns if c.name == name) for name in key.target_columns]
        where = " AND ".join(f"t.{_sql(column)} = k.c{n}" for n, column in enumerate(columns))
        query = f"SELECT {self._list(target)} FROM {_unnested(columns)} JOIN {_escaped(target.from_sql)} t ON {where}"
        return self._read(target, query, wanted)

    def _wanted(self, table: LiveTable, key: Reference) -> set[tuple[str, ...]]:
        found: set[tuple[str, ...]] = set()
        for row in self._taken[table.oid].values():
            values = [row[column.name] for column in key.columns]
            if None not in values:
                found.add(tuple(str(value) for value in values))
        return found

    def _present(self, key: Reference) -> set[tuple[str | None, ...]]:
        return {tuple(row[name] for name in key.target_columns) for row in self._taken.get(key.target, {}).values()}

    def _prune(self) -> tuple[int, int]:
        """Until every reference holds: (references cut, rows left out)."""
        cut, left_out, changed = 0, 0, True
        while changed:
            changed = False
            for table in self._tables.values():
                for key in table.references:
                    missing = self._wanted(table, key) - self._present(key)
                    if not missing:
                        continue
                    changed = True
                    free = [column.name for column in key.columns if not column.not_null]
                    for row_id, row in list(self._taken[table.oid].items()):
                        if tuple(row[column.name] for column in key.columns) not in missing:
                            continue
                        if free:
                            row.update(dict.fromkeys(free))
                            cut += 1
                        else:
                            del self._taken[table.oid][row_id]
                            left_out += 1
        return cut, left_out

    def _lots(self, oid: int) -> list[Cells]:
        """The rows taken of a table, shuffled by the seed."""
        rows = self._taken[oid].items()
        drawn = sorted(rows, key=lambda item: hashlib.sha256(f"{self._bounds.seed}{item[0]}".encode()).digest())
        return [row for _, row in drawn]

    def _sorted(self, oid: int) -> list[Cells]:
        """In the order of the key, numbers as numbers; without a key as they lie in the table."""
        key = self._tables[oid].primary_key

        def position(item: tuple[str, Cells]) -> list[tuple[int, int | str]]:
            values = [item[1][name] or "" for name in key] or [item[0]]
            return [(0, int(v)) if v.lstrip("-").isdigit() and v.isascii() else (1, v) for v in values]

        return [row for _, row in sorted(self._taken[oid].items(), key=position)]

    def _identity(self, table: LiveTable) -> str:
        """What tells a row from others: its key, or its place, which a snapshot keeps."""
        if table.primary_key:
            key = [next(c for c in table.columns if c.name == name) for name in table.primary_key]
            return " || '/' || ".join(f"t.{_sql(column)}::text" for column in key)
        return "t.tableoid::text || t.ctid::text"

    def _list(self, table: LiveTable) -> str:
        columns = [column for column in table.columns if not column.is_generated]
        return ", ".join([f"{self._identity(table)} AS row_id", *map(_as_text, columns)])

    def _read(
        self, table: LiveTable, query: str, keys: Sequence[Sequence[str | None]] | None = None
    ) -> list[tuple[str, Cells]]:
        """The rows of a query, by their ids. One that may not be read or takes too long yields none, and is noted."""
        names = [column.name for column in table.columns if not column.is_generated]
        found: list[tuple[str, Cells]] = []
        batches = (
            [None] if keys is None else [keys[n : n + KEYS_PER_QUERY] for n in range(0, len(keys), KEYS_PER_QUERY)]
        )
        for batch in batches:
            parameters = [list(values) for values in zip(*batch or (), strict=True)]
            try:
                with self._live.connection.transaction():
                    rows = self._live.connection.execute(query.encode(), parameters).fetchall()
            except (psycopg.errors.QueryCanceled, psycopg.errors.InsufficientPrivilege) as error:
                self._notes.append(f"{table.label}: {self._live.message(error).splitlines()[0]}")
                break
            found += [(row_id, dict(zip(names, cells, strict=True))) for row_id, *cells in rows]
        return found


def _as_text(column: LiveColumn) -> str:
    """The value as text, cut where it is very long."""
    text, reference = f"t.{_sql(column)}::text", f"t.{_sql(column)}"
    if column.is_number or column.is_boolean:
        return f"{text} AS {_sql(column)}"
    if column.base_type in _CUT_TYPES:
        return f"pg_catalog.left({text}, {LONGEST_VALUE}) AS {_sql(column)}"
    if column.base_type == "bytea":
        return f"pg_catalog.substring({reference}, 1, {LONGEST_VALUE // 2})::text AS {_sql(column)}"
    if column.not_null:
        return f"{text} AS {_sql(column)}"
    return f"CASE WHEN pg_catalog.length({text}) <= {LONGEST_VALUE} THEN {text} END AS {_sql(column)}"


def _sql(column: LiveColumn) -> str:
    return _escaped(column.sql)


def _escaped(text: str) -> str:
    """As psycopg takes it beside `%s`."""
    return text.replace("%", "%%")


def _unnested(columns: Sequence[LiveColumn]) -> str:
    arrays = ", ".join(f"%s::text[]::{_escaped(column.type_sql)}[]" for column in columns)
    return f"ROWS FROM (unnest({arrays})) AS k({', '.join(f'c{n}' for n in range(len(columns)))})"
