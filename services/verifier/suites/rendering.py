"""A seed as SQL that people can read: one INSERT a table, a line a row. Pure."""

from collections.abc import Sequence
from datetime import date

from services.verifier.suites.tables import Column, Contents, Kind, Row, Table, Value
from shared.sql import identifier, literal

NEAR_DAYS = 800
"""A date of a column that follows the clock is written relative to the current date when it is no farther from it."""


def seed_sql(tables: Sequence[Table], contents: Contents, title: str, today: date) -> str:
    """INSERTs in the order of `tables`. Columns that follow the clock go on following it."""
    parts = ["".join(f"-- {line}\n" for line in title.splitlines())]
    for table in tables:
        rows = contents[table.name]
        if rows and table.columns:
            names = ", ".join(identifier(column.name) for column in table.columns)
            target = ".".join(identifier(part) for part in table.name.split(".", 1))
            # A GENERATED ALWAYS identity takes a given value only when told so; on other columns it changes nothing.
            opening = f"INSERT INTO {target} ({names}) OVERRIDING SYSTEM VALUE VALUES\n"
            parts.append(opening + ",\n".join(_row(table.columns, row, today) for row in rows) + ";\n")
    return "\n".join(parts)


def _row(columns: Sequence[Column], row: Row, today: date) -> str:
    return "(" + ", ".join(_value(column, value, today) for column, value in zip(columns, row, strict=True)) + ")"


def _value(column: Column, value: Value, today: date) -> str:
    if value is None:
        return "NULL"
    if column.from_clock and column.kind in (Kind.DATE, Kind.TIMESTAMP):
        relative = _relative(value, column.kind, today)
        if relative is not None:
            return relative
    bare = column.kind in (Kind.INTEGER, Kind.DECIMAL) and value.lstrip("-").replace(".", "", 1).isdecimal()
    return value if bare else literal(value)


def _relative(value: str, kind: Kind, today: date) -> str | None:
    """`CURRENT_DATE - 37`, with a time of day where there is one."""
    try:
        days = (date.fromisoformat(value[:10]) - today).days
    except ValueError:
        return None
    if abs(days) > NEAR_DAYS or (kind is Kind.DATE and len(value) > 10):
        return None
    day = f"CURRENT_DATE {'-' if days < 0 else '+'} {abs(days)}" if days else "CURRENT_DATE"
    clock, _, zone = value[11:].partition("+")
    if kind is Kind.DATE or clock in ("", "00:00:00"):
        return day
    return f"{day} + TIME {literal(clock)}" if zone in ("", "00") and "-" not in clock else None
