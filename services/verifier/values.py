"""What Postgres sends (text format) to values that compare, type by type. Pure.

NULL is None, a finite number is a Decimal, text is a str; everything else is a tuple that begins with its kind, so that
no two kinds are ever equal. Relies on the session's pinned settings: ISO dates, ISO 8601 intervals, UTC, hex bytea.
"""

import functools
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from psycopg.postgres import types as _builtin_types

from services.verifier.nested import Decoder, Value, array, json_value, multirange, range_value

_MICROSECONDS_A_DAY = 86_400_000_000
_DAYS_A_MONTH = 30
"""As Postgres' own interval equality counts."""

_TIMESTAMP = re.compile(
    r"(\d{4,})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
    r"(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?( BC)?"
)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?")
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?"
)


def folded_text(raw: str) -> Value:
    """Blanks around it and its case do not count."""
    return raw.strip().casefold()


def exact_text(raw: str) -> Value:
    """Every character counts."""
    return raw


def _padded(raw: str) -> Value:
    return raw.rstrip(" ")  # char(n): Postgres itself does not count its padding


def _bool(raw: str) -> Value:
    return ("bool", raw == "t")


def _number(raw: str) -> Value:
    value = Decimal(raw)
    return value if value.is_finite() else ("number", str(value).lower())


def _money(raw: str) -> Value:
    return Decimal(raw.replace("$", "").replace(",", ""))


def _bytes(raw: str) -> Value:
    return ("bytes", raw)


def _days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year (Python's dates end at 9999)."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _offset_seconds(sign: str | None, hours: str | None, minutes: str | None, seconds: str | None) -> int:
    if sign is None:
        return 0
    total = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return -total if sign == "-" else total


def _instant(raw: str) -> Value:
    """Date, timestamp and timestamptz alike: microseconds since 1970 UTC; a date is its midnight."""
    found = _TIMESTAMP.fullmatch(raw)
    if found is None:  # infinity
        return ("instant", raw)
    year, month, day, hour, minute, second, fraction, sign, *offset, era = found.groups()
    days = _days_from_civil(1 - int(year) if era else int(year), int(month), int(day))
    clock = int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0) - _offset_seconds(sign, *offset)
    return ("instant", days * _MICROSECONDS_A_DAY + clock * 1_000_000 + int((fraction or "").ljust(6, "0")))


def _time(raw: str) -> Value:
    found = _TIME.fullmatch(raw)
    if found is None:
        return ("time", raw)
    hour, minute, second, fraction, sign, *offset = found.groups()
    clock = int(hour) * 3600 + int(minute) * 60 + int(second) - _offset_seconds(sign, *offset)
    return ("time", clock * 1_000_000 + int((fraction or "").ljust(6, "0")))


class IntervalParts(NamedTuple):
    """An interval as Postgres keeps it; parts may differ in sign."""

    years: int
    months: int
    days: int
    seconds: Decimal


def interval_parts(raw: str) -> IntervalParts | None:
    """From ISO 8601 (`P1Y2M3DT4H5M6.7S`); None for infinity."""
    found = _INTERVAL.fullmatch(raw)
    if found is None:
        return None
    years, months, weeks, days, hours, minutes = (int(part or 0) for part in found.groups()[:6])
    return IntervalParts(years, months, weeks * 7 + days, hours * 3600 + minutes * 60 + Decimal(found[7] or 0))


def _interval(raw: str) -> Value:
    parts = interval_parts(raw)
    if parts is None:
        return ("interval", raw)
    days = (parts.years * 12 + parts.months) * _DAYS_A_MONTH + parts.days
    return ("interval", days * _MICROSECONDS_A_DAY + int(parts.seconds * 1_000_000))


_BY_TYPE: dict[str, Decoder] = {
    "bool": _bool,
    "bytea": _bytes,
    "date": _instant,
    "timestamp": _instant,
    "timestamptz": _instant,
    "time": _time,
    "timetz": _time,
    "interval": _interval,
    "money": _money,
    **dict.fromkeys(("int2", "int4", "int8", "oid", "float4", "float8", "numeric"), _number),
}
_RANGES = {
    "int4range": _number,
    "int8range": _number,
    "numrange": _number,
    "daterange": _instant,
    "tsrange": _instant,
    "tstzrange": _instant,
}
_FLOATS = ("float4", "float8")


@functools.cache
def decoder(oid: int, text: Decoder = folded_text) -> Decoder:
    """How a type's text becomes a value; `text` is the rule for text wherever it stands, also in arrays and JSON.

    Types this module does not know (enums, uuid, inet, records, …) compare as text. A domain arrives as its base type.
    """
    info = _builtin_types.get(oid)
    if info is None:
        return text
    if info.array_oid == oid:
        return functools.partial(array, element=decoder(info.oid, text))
    if info.name in ("json", "jsonb"):
        return functools.partial(json_value, text=text)
    if info.name == "bpchar" and text is exact_text:
        return _padded
    if (element := _RANGES.get(info.name)) is not None:
        return functools.partial(range_value, element=element)
    if (element := _RANGES.get(info.name.replace("multirange", "range"))) is not None:
        return functools.partial(multirange, element=element)
    return _BY_TYPE.get(info.name, text)


def is_float(oid: int) -> bool:
    """Whether a type holds float4 or float8, whose last digits depend on the order of summation."""
    info = _builtin_types.get(oid)
    return info is not None and info.name in _FLOATS


def decode_rows(
    rows: Sequence[tuple[str | None, ...]], oids: Sequence[int], text: Decoder = folded_text
) -> list[tuple[Value, ...]]:
    """Rows of Postgres' text (n rows × len(oids) columns) to rows of values."""
    decoders = [decoder(oid, text) for oid in oids]
    return [
        tuple(None if raw is None else decode(raw) for decode, raw in zip(decoders, row, strict=True)) for row in rows
    ]
