"""What a schema says of itself and its rows show: tables, columns, types, keys, rows. Parsed, not queried."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import cached_property

from services.author import inferred
from services.author.schema_tree import SERIAL_TYPES, ColumnDraft, SchemaTree, TableDraft, read_schema
from shared.domain import Bundle
from shared.seed_rows import Row, Value, rows_of
from shared.sql import identifier
from shared.words import Vocabulary


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
    **dict.fromkeys(("text", "varchar", "bpchar", "citext", "enum"), Kind.TEXT),
    "bool": Kind.BOOLEAN,
    "date": Kind.DATE,
    **dict.fromkeys(("timestamp", "timestamptz"), Kind.TIMESTAMP),
}


def _number(text: str) -> Decimal:
    number = Decimal(text.strip())
    if not number.is_finite():
        raise ValueError(f"{text} compares with nothing here")
    return number


def _iso_date(text: str) -> str:
    if not re.match(r"\d{4}-\d{2}-\d{2}", text):
        raise ValueError(f"{text} is no date of four-digit years, year first")
    return text


_READERS: dict[Kind, Callable[[str], Value]] = {
    Kind.INTEGER: int,
    Kind.DECIMAL: _number,
    Kind.FLOAT: _number,
    Kind.BOOLEAN: lambda text: text.strip().lower() in ("t", "true", "y", "yes", "on", "1"),
    Kind.DATE: _iso_date,
    Kind.TIMESTAMP: _iso_date,
}
"""A string literal as the value Postgres would make of it. They raise ValueError or ArithmeticError."""


@dataclass(frozen=True)
class Column:
    """One column of one table."""

    table: str
    name: str
    kind: Kind = field(compare=False)
    nullable: bool = field(compare=False)
    """NULL occurs, or may in a table without rows: not declared NOT NULL, and not seen to be so on every seed."""
    unique: bool = field(compare=False)
    """No two rows share a value: a primary key or UNIQUE of this column alone, declared or seen."""
    words: tuple[str, ...] = field(default=(), compare=False)
    """Its name as English words."""
    comment: str = field(default="", compare=False)
    """What the schema says of it."""
    label: str = field(default="", compare=False)
    """What the notes call it; "" where they do not."""
    is_enum: bool = field(default=False, compare=False)
    """Sorts in the order of its type's declaration, not alphabetically."""
    is_text_date: bool = field(default=False, compare=False)
    """A date kept as text, YYYY-MM-DD."""

    @cached_property
    def sql(self) -> str:
        """The name, quoted where SQL needs it."""
        return identifier(self.name)

    def as_date(self, reference: str) -> str:
        """An expression of a date type for the column written as `reference`."""
        return f"{reference}::date" if self.is_text_date else reference


@dataclass(frozen=True)
class ForeignKey:
    """A reference of one column to one column."""

    table: str
    column: str
    references: str
    referenced: str


@dataclass(frozen=True)
class Table:
    """One table with the rows of the main seed. Outside `public` it is called `schema.table`."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    """As declared; else one column that names rows, should the rows show one."""
    rows: tuple[Row, ...] = field(repr=False, compare=False)
    words: tuple[str, ...] = field(default=(), compare=False)
    """Its name as English words."""
    label: str = field(default="", compare=False)
    """What the notes call it; "" where they do not."""
    sql: str = field(default="", compare=False)
    """Its name, quoted where SQL needs it."""

    def column(self, name: str) -> Column:
        """The column of that name. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name} has no column {name}")

    @cached_property
    def is_all_integers(self) -> bool:
        """Whether it has several columns, all of them integers."""
        return len(self.columns) > 1 and all(column.kind is Kind.INTEGER for column in self.columns)

    @property
    def key(self) -> Column | None:
        """The primary key where it is one column."""
        return self.column(self.primary_key[0]) if len(self.primary_key) == 1 else None


@dataclass(frozen=True)
class Catalogue:
    """A schema."""

    tables: dict[str, Table]
    foreign_keys: tuple[ForeignKey, ...]
    """Of one column each: those declared, then those that names and values show."""

    def column(self, table: str, name: str) -> Column:
        """The column of that name. Raises KeyError."""
        return self.tables[table].column(name)

    def is_key(self, column: Column) -> bool:
        """Whether the column identifies a row here or elsewhere: part of a primary or foreign key.

        A table of integers alone, none of which names its rows, links others: its columns are keys, declared or not.
        """
        table = self.tables[column.table]
        is_declared = column.name in table.primary_key or any(
            key.table == column.table and key.column == column.name for key in self.foreign_keys
        )
        return is_declared or (not table.primary_key and table.is_all_integers)


def read_catalogue(schema_sql: str, seed_sql: str, notes: str = "", variants: Sequence[str] = ()) -> Catalogue:
    """The catalogue of a schema with its rows. `variants`: other seeds, which what the rows show has to hold on too.

    Raises postgast.PgQueryError where the SQL does not parse.
    """
    tree = read_schema(schema_sql)
    drafts = {name: draft for name, draft in tree.tables.items() if draft.partition_of is None}
    seeds = [_seed(tree, seed) for seed in (seed_sql, *variants)]
    vocabulary = Vocabulary(draft.spelled for draft in drafts.values())
    labels = noted_labels(notes)
    tables = {name: _table(name, draft, tree, seeds, vocabulary, labels) for name, draft in drafts.items()}
    declared = tuple(_declared_keys(drafts))
    return Catalogue(tables, (*declared, *_shown_keys(tables, declared, seeds, vocabulary, drafts)))


def catalogue_of(bundle: Bundle) -> Catalogue:
    """The catalogue of a bundle with all its seeds and notes. Raises postgast.PgQueryError."""
    return read_catalogue(bundle.schema_sql, bundle.seed_sql, bundle.notes, tuple(bundle.variants.values()))


def noted_labels(notes: str) -> dict[str, str]:
    """`table` or `table.column` to what the notes call it: a line `- orders.shp_ccy = shipping currency`."""
    found = re.findall(r"^[-*][ \t]+`?([\w.]+)`?[ \t]+=[ \t]+([^=\n]+?)[ \t.]*$", notes, re.MULTILINE)
    return {name.lower(): " ".join(label.split()) for name, label in found}


def _seed(tree: SchemaTree, seed_sql: str) -> dict[str, list[Row]]:
    """Table to rows; a partition's belong to the table it is a part of."""
    columns = {name: {c.name: c.has_default for c in draft.columns.values()} for name, draft in tree.tables.items()}
    found: dict[str, list[Row]] = {}
    for name, rows in rows_of(seed_sql, columns).items():
        whole = name
        while (parent := tree.tables[whole].partition_of) in tree.tables:
            whole = parent
        found.setdefault(whole, []).extend(rows)
    for name, rows in found.items():
        for column in tree.tables[name].columns.values():
            _settle(rows, column, _kind(tree, column))
    return found


def _settle(rows: list[Row], column: ColumnDraft, kind: Kind) -> None:
    """Numbers written as strings become numbers; a serial column that no INSERT names is counted.

    A value that cannot be read (`infinity`, another way to write dates) is not known.
    """
    if column.is_serial and not any(column.name in row for row in rows):
        for number, row in enumerate(rows, 1):
            row[column.name] = number
    for row in rows:
        value = row.get(column.name)
        if isinstance(value, str) and kind in _READERS:
            try:
                row[column.name] = _READERS[kind](value)
            except (ValueError, ArithmeticError):
                del row[column.name]


def _table(
    name: str,
    draft: TableDraft,
    tree: SchemaTree,
    seeds: inferred.Seeds,
    vocabulary: Vocabulary,
    labels: dict[str, str],
) -> Table:
    named = [_named(name, column, tree, vocabulary) for column in draft.columns.values()]
    key = None
    if not draft.primary_key:
        key = inferred.key_of(name, inferred.row_words(vocabulary, draft.spelled), named, seeds)
    columns = []
    for column, found in zip(draft.columns.values(), named, strict=True):
        kind = Kind(found.kind)
        is_text_date = kind is Kind.TEXT and inferred.is_text_date(seeds, name, column.name)
        columns.append(
            Column(
                name,
                column.name,
                Kind.DATE if is_text_date else kind,
                nullable=not column.not_null and inferred.occurs_null(seeds, name, column.name),
                unique=column.name in draft.unique or column.name == key,
                words=found.words,
                comment=column.comment,
                label=labels.get(f"{name}.{column.name}".lower(), ""),
                is_enum=tree.base_type(column.type_name) == "enum",
                is_text_date=is_text_date,
            )
        )
    return Table(
        name,
        tuple(columns),
        draft.primary_key or ((key,) if key else ()),
        tuple(seeds[0].get(name, ())),
        tuple(vocabulary.words(draft.spelled)),
        labels.get(name.lower(), ""),
        ".".join(identifier(part) for part in draft.parts),
    )


def _named(table: str, column: ColumnDraft, tree: SchemaTree, vocabulary: Vocabulary) -> inferred.Named:
    return inferred.Named(table, column.name, tuple(vocabulary.words(column.spelled)), _kind(tree, column))


def _kind(tree: SchemaTree, column: ColumnDraft) -> Kind:
    return _KINDS.get(tree.base_type(column.type_name), Kind.OTHER)


def _declared_keys(drafts: dict[str, TableDraft]) -> Iterator[ForeignKey]:
    for name, draft in drafts.items():
        for column, table, referenced in draft.references:
            target = drafts.get(table)
            if target is not None and (referenced or len(target.primary_key) == 1):
                yield ForeignKey(name, column, table, referenced or target.primary_key[0])


def _shown_keys(
    tables: dict[str, Table],
    declared: Sequence[ForeignKey],
    seeds: inferred.Seeds,
    vocabulary: Vocabulary,
    drafts: dict[str, TableDraft],
) -> Iterator[ForeignKey]:
    """References that are not declared."""

    def named(column: Column) -> inferred.Named:
        return inferred.Named(column.table, column.name, column.words, column.kind)

    known = {(key.table, key.column) for key in declared}
    columns = [
        named(column)
        for table in tables.values()
        for column in table.columns
        if (table.name, column.name) not in known and column.kind in (Kind.INTEGER, Kind.TEXT)
    ]
    keys = {name: named(table.key) for name, table in tables.items() if table.key is not None}
    rows_named = {name: inferred.row_words(vocabulary, draft.spelled) for name, draft in drafts.items()}
    for column, key in inferred.references(columns, keys, rows_named, seeds):
        yield ForeignKey(column.table, column.name, key.table, key.name)
