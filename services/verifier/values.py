"""What Postgres sends (text format) to values that compare: the normalisation of profile `standard`. Pure.

NULL is None, a finite number is a Decimal, text is a stripped and case-folded str; everything else is a tuple that
begins with its kind, so that no two kinds are ever equal. Relies on the session's pinned settings: ISO dates, ISO 8601
intervals, UTC, hex bytea.
"""

import functools
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from psycopg.postgres import types as _builtin_types

Value = None | Decimal | str | tuple[Any, ...]
Decoder = Callable[[str], Value]

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


def _text(raw: str) -> Value:
    return raw.strip().casefold()


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


def _interval(raw: str) -> Value:
    found = _INTERVAL.fullmatch(raw)
    if found is None:
        return ("interval", raw)
    years, months, weeks, days, hours, minutes = (int(part or 0) for part in found.groups()[:6])
    total_days = (years * 12 + months) * _DAYS_A_MONTH + weeks * 7 + days
    clock = hours * 3600 + minutes * 60 + Decimal(found[7] or 0)
    return ("interval", total_days * _MICROSECONDS_A_DAY + int(clock * 1_000_000))


def _frozen_json(value: Any) -> Any:
    if isinstance(value, dict):
        return ("object", tuple(sorted((key, _frozen_json(item)) for key, item in value.items())))
    if isinstance(value, list):
        return ("list", tuple(_frozen_json(item) for item in value))
    return ("bool", value) if isinstance(value, bool) else value


def _json(raw: str) -> Value:
    try:
        loaded = json.loads(raw, parse_int=Decimal, parse_float=Decimal)
        return ("json", _frozen_json(loaded))
    except (ValueError, RecursionError):  # deeper than Python's parser goes: compare the text
        return ("json", raw)


_RANGE_BOUND = re.compile(r'"((?:[^"\\]|\\.|"")*)"|([^,\[\]()"]*)')


def _range(raw: str, element: Decoder) -> Value:
    """`[1,10)`, `empty`, `("a b",]`: bracket kinds and bounds by value."""
    if raw == "empty":
        return ("range", "empty")
    lower = _RANGE_BOUND.match(raw, 1)
    upper = _RANGE_BOUND.match(raw, lower.end() + 1) if lower else None
    if lower is None or upper is None:
        return ("range", raw)
    return ("range", raw[0], _bound(lower, element), _bound(upper, element), raw[-1])


def _bound(found: re.Match[str], element: Decoder) -> Value:
    if found[1] is not None:
        return element(re.sub(r'\\(.)|"(")', r"\1\2", found[1]))
    return element(found[2]) if found[2] else None


def _multirange(raw: str, element: Decoder) -> Value:
    parts = re.findall(r'[\[(](?:"(?:[^"\\]|\\.|"")*"|[^"\])])*[\])]', raw)
    return ("multirange", tuple(_range(part, element) for part in parts))


_ARRAY_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([{},])|([^{},"]+)')


def _array(raw: str, element: Decoder) -> Value:
    """`{1,NULL,"a,b"}`, nested, with or without dimensions in front; elements by value."""
    body = raw[raw.index("={") + 1 :] if raw.startswith("[") else raw
    stack: list[list[Any]] = [[]]
    for quoted, mark, bare in _ARRAY_TOKEN.findall(body):
        if mark == "{":
            stack.append([])
        elif mark == "}":
            finished = tuple(stack.pop())
            stack[-1].append(("array", finished))
        elif mark == ",":
            continue
        elif bare == "NULL":
            stack[-1].append(None)
        else:
            stack[-1].append(element(bare or re.sub(r"\\(.)", r"\1", quoted)))
    whole: Value = stack[0][0]
    return whole


_BY_TYPE: dict[str, Decoder] = {
    "bool": _bool,
    "bytea": _bytes,
    "date": _instant,
    "timestamp": _instant,
    "timestamptz": _instant,
    "time": _time,
    "timetz": _time,
    "interval": _interval,
    "json": _json,
    "jsonb": _json,
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


@functools.cache
def decoder(oid: int) -> Decoder:
    """How a type's text becomes a value. Types this module does not know (enums, uuid, inet, …) compare as text."""
    info = _builtin_types.get(oid)
    if info is None:
        return _text
    if info.array_oid == oid:
        return functools.partial(_array, element=decoder(info.oid))
    if (element := _RANGES.get(info.name)) is not None:
        return functools.partial(_range, element=element)
    if (element := _RANGES.get(info.name.replace("multirange", "range"))) is not None:
        return functools.partial(_multirange, element=element)
    return _BY_TYPE.get(info.name, _text)


def decode_rows(rows: list[tuple[str | None, ...]], oids: list[int]) -> list[tuple[Value, ...]]:
    """Rows of Postgres' text (n rows × len(oids) columns) to rows of values."""
    decoders = [decoder(oid) for oid in oids]
    return [
        tuple(None if raw is None else decode(raw) for decode, raw in zip(decoders, row, strict=True)) for row in rows
    ]
