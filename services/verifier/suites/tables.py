"""Tables, their constraints and their rows, as far as making further rows needs them. Pure.

Values are text as Postgres prints them under the sandbox's pinned settings: any type goes in and out alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Value = str | None
Row = tuple[Value, ...]
"""One value a column of its table, in order."""


class Kind(StrEnum):
    """How a column's values can be changed."""

    INTEGER = "integer"
    DECIMAL = "decimal"  # numeric, float, money
    DATE = "date"
    TIMESTAMP = "timestamp"
    TEXT = "text"
    BOOLEAN = "boolean"
    CHOICE = "choice"  # an enum
    OTHER = "other"  # only values that are there already


@dataclass(frozen=True)
class Column:
    """One column that an INSERT may fill."""

    name: str
    kind: Kind
    type: str
    """As `format_type` spells it."""
    nullable: bool
    choices: tuple[str, ...] = ()
    """Of an enum."""
    from_clock: bool = False
    """The main seed gives it values relative to the current date."""


@dataclass(frozen=True)
class ForeignKey:
    """Columns (by index) that refer to columns of another table, or of the same."""

    columns: tuple[int, ...]
    table: str
    referenced: tuple[int, ...]
    declared: bool = True
    """In the schema; else golds join along it, and it need not hold."""


@dataclass(frozen=True)
class Table:
    """One table with the rows of the main seed."""

    name: str
    """`schema.table` outside `public`."""
    columns: tuple[Column, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    """Sets of columns that no two rows may share: declared ones, and those inferred (see `links`)."""
    foreign_keys: tuple[ForeignKey, ...] = ()
    rows: tuple[Row, ...] = field(default=(), repr=False)

    def index(self, column: str) -> int:
        """Position of a column. Raises KeyError."""
        for position, found in enumerate(self.columns):
            if found.name == column:
                return position
        raise KeyError(f"{self.name} has no column {column}")


Contents = dict[str, list[Row]]
"""Table to its rows: one seed."""


def parents_first(tables: Sequence[Table]) -> list[Table]:
    """The tables so that each comes after those it refers to; a ring is broken at its first table."""
    waiting = {table.name: table for table in tables}
    ordered: list[Table] = []
    while waiting:
        free = [
            table
            for table in waiting.values()
            if not any(key.table in waiting and key.table != table.name for key in table.foreign_keys)
        ]
        ordered += free or [next(iter(waiting.values()))]
        for table in ordered:
            waiting.pop(table.name, None)
    return ordered
