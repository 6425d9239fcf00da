"""Other values near a value, by kind of column: what boundaries, ties, cases and calendars are made of. Pure.

Numbers keep their scale and stay non-negative where the column's values are; dates stay within two years of them.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from random import Random

from services.verifier.suites.tables import Column, Kind

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)( \d\d:\d\d:\d\d(?:\.\d+)?)([+-]\d\d(?::\d\d)*)?")


def neighbours(value: str, column: Column) -> list[str]:
    """The value and the ones a unit away on either side; text in other cases."""
    match column.kind:
        case Kind.INTEGER | Kind.DECIMAL:
            return _near_numbers(value, column)
        case Kind.DATE if _DAY.match(value):
            return [str(day) for step in (-1, 0, 1) if (day := moved(value[:10], step)) is not None]
        case Kind.TIMESTAMP if _DAY.match(value):
            days = [str(day) for step in (-1, 0, 1) if (day := moved(value[:10], step)) is not None]
            clock = value[10:] or " 00:00:00"
            return [*(day + clock for day in days), f"{days[0]} 23:59:59.999", f"{value[:10]} 00:00:01"]
        case Kind.TEXT if _NUMBER.fullmatch(value):
            return _near_numbers(value, column)
        case Kind.TEXT if _DAY.fullmatch(value):
            return [str(day) for step in (-1, 0, 1) if (day := moved(value, step)) is not None]
        case Kind.TEXT:
            return [value, *cases(value)]
        case _:
            return [value]


def _near_numbers(value: str, column: Column) -> list[str]:
    try:
        number = Decimal(value)
    except InvalidOperation:
        return []
    if column.kind is Kind.INTEGER:
        whole = int(number) if number.is_finite() else 0
        return [str(whole + step) for step in (-1, 0, 1)]
    exponent = number.as_tuple().exponent
    unit = Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
    return list(dict.fromkeys(str(number + step) for step in (-1, -unit, 0, unit, 1)))


def cases(text: str) -> list[str]:
    """The same letters in other case."""
    return [other for other in (text.upper(), text.lower(), text.title(), text.swapcase()) if other != text]


def from_pattern(pattern: str) -> list[str]:
    """Texts that a LIKE pattern takes, and near misses: a word before, after, in other case."""
    core = pattern.strip("%").replace("%", " ").replace("_", "x")
    filled = pattern.replace("%", "").replace("_", "x")
    return [*dict.fromkeys([core, filled, f"{core} a", f"a {core}", f"a {core} a", core.upper(), core.lower()])]


def moved(day: str, days: int) -> date | None:
    """A day that many days later; None outside the calendar."""
    try:
        return date.fromisoformat(day) + timedelta(days=days)
    except (ValueError, OverflowError):
        return None


def shifted(value: str, column: Column, values: Sequence[str], random: Random) -> str:
    """Another value of the same kind; `values` are those the column has on the main seed."""
    match column.kind:
        case Kind.INTEGER | Kind.DECIMAL:
            return _other_number(value, column, values, random)
        case Kind.DATE | Kind.TIMESTAMP:
            return _other_instant(value, random)
        case Kind.BOOLEAN:
            return "false" if value == "true" else "true"
        case Kind.CHOICE:
            return random.choice(column.choices)
        case Kind.TEXT if _NUMBER.fullmatch(value) and all(_NUMBER.fullmatch(other) for other in values):
            return _other_number(value, column, values, random)
        case Kind.TEXT if _DAY.fullmatch(value):
            return _other_instant(value, random)
        case _:
            return random.choice(values) if values else value


def _other_number(value: str, column: Column, values: Sequence[str], random: Random) -> str:
    try:
        number = Decimal(value)
        known = [Decimal(other) for other in values]
    except InvalidOperation:
        return value
    if not number.is_finite() or not all(other.is_finite() for other in known):
        return value
    exponent = number.as_tuple().exponent
    unit = Decimal(1).scaleb(exponent if isinstance(exponent, int) and column.kind is not Kind.INTEGER else 0)
    low, high = min(known, default=number), max(known, default=number)
    draws: list[Callable[[], Decimal]] = [
        lambda: number + unit,
        lambda: number - unit,
        lambda: number + random.choice((-10, 10)),
        lambda: number * 2,
        lambda: low + (high - low) * Decimal(random.randrange(101)) / 100,
        lambda: Decimal(random.randrange(10)),
    ]
    other = random.choice(draws)().quantize(unit)
    return str(abs(other) if low >= 0 else other)


def _other_instant(value: str, random: Random) -> str:
    found = _INSTANT.fullmatch(value)
    day, clock, zone = (found[1], found[2], found[3] or "") if found else (value[:10], value[10:], "")
    try:
        moved_day = _other_day(date.fromisoformat(day), random)
    except (ValueError, OverflowError):
        return value
    if clock and random.random() < 0.3:
        clock = random.choice((" 00:00:00", " 23:59:59", " 12:00:00"))
    return f"{moved_day}{clock}{zone}"


def _other_day(day: date, random: Random) -> date:
    first = day.replace(day=1)
    last = day.replace(day=monthrange(day.year, day.month)[1])
    draws = (
        lambda: day + timedelta(days=random.choice((-1, 1))),
        lambda: day + timedelta(days=random.choice((-7, 7))),
        lambda: first,
        lambda: last,
        lambda: first - timedelta(days=1),
        lambda: last + timedelta(days=1),
        lambda: day + timedelta(days=random.randrange(-45, 46)),
        lambda: day + timedelta(days=random.choice((-365, 365))),
        lambda: day.replace(month=1, day=1),
        lambda: day.replace(month=12, day=31),
        lambda: day + timedelta(days=(5 - day.weekday())),  # that week's Saturday
        lambda: day - timedelta(days=day.weekday()),  # its Monday
    )
    return random.choice(draws)()
