"""Profile `recipe`: the published text-to-SQL recipe's rule with its faults, so that its figures can be compared.

Ours all the same: the sandbox (what it refuses earns nothing) and `unscorable` for a failure of our own. The item's
`order_matters`, variants and the finish reason play no part, because the recipe knows none.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

from psycopg.postgres import types as _builtin_types

from services.verifier.comparison import EQUAL, OTHER_ORDER, OTHER_VALUES, Comparison, Table, other_counts
from services.verifier.execution import Outcome
from services.verifier.extraction import Extraction
from services.verifier.gold_plan import GoldPlan
from services.verifier.nested import ArrayItem, array_items
from services.verifier.profiles.base import Rules, TieGroups
from services.verifier.values import interval_parts
from shared.contracts.verifier import FinishReason, Status

PERMUTED_COLUMNS = 5
"""Up to so many columns every order is tried; wider results must have the gold's."""

_BEGINNING = re.compile(r"\b(?:select|with)\b", re.IGNORECASE)
_LABEL = re.compile(r"(?:sql)?\s*", re.IGNORECASE)
_ORDER_BY = re.compile(r"\border\s+by\b", re.IGNORECASE)
_FRACTION = re.compile(r"\.(\d+)")
_HOURS_ONLY = re.compile(r"(?<=:\d\d)(\.\d+)?([+-]\d\d)$")


def extract(reply: str, finish_reason: FinishReason | None = None) -> Extraction:
    """The last closed fence, else all from the first SELECT or WITH; closed reasoning dropped, unclosed kept."""
    del finish_reason  # a cut reply may score
    text = _without_closed_reasoning(reply)
    pieces = text.split("```")
    blocks = pieces[1:-1:2]
    if blocks:
        block = blocks[-1]
        sql = block[_LABEL.match(block).end() :]  # type: ignore[union-attr]  # it matches nothing too
    elif (beginning := _BEGINNING.search(text)) is not None:
        sql = text[beginning.start() :]
    else:
        return Extraction(None, "no fenced block, and neither SELECT nor WITH")
    sql = sql.strip().rstrip(";").strip()
    if not _BEGINNING.match(sql):
        return Extraction(None, "what was found does not begin with SELECT or WITH")
    if ";" in sql:
        return Extraction(None, "a semicolon within: more than one statement to the recipe")
    return Extraction(sql, "fenced block" if blocks else "bare statement")


def _without_closed_reasoning(reply: str) -> str:
    kept = []
    position = 0
    while (opening := reply.find("<think>", position)) >= 0:
        closing = reply.find("</think>", opening)
        if closing < 0:
            break
        kept.append(reply[position:opening])
        position = closing + len("</think>")
    return "".join([*kept, reply[position:]])


def _number(raw: str) -> float:
    return round(float(raw), 2) or 0.0  # -0 is 0


def _text(raw: str) -> float | str:
    """Text that reads as a number is that number."""
    text = raw.strip().lower()
    try:
        return _number(text.replace(",", "").replace("$", ""))
    except ValueError:
        return text


def _clock(raw: str) -> str:
    """Dates and times as Python's isoformat prints them."""
    raw = _FRACTION.sub(lambda found: "." + found[1].ljust(6, "0"), raw)
    return _HOURS_ONLY.sub(r"\1\2:00", raw)


def _days(raw: str) -> float | str:
    """A year counts 365 days and a month 30, as psycopg reads intervals."""
    parts = interval_parts(raw)
    if parts is None:
        return raw
    days = parts.years * 365 + parts.months * 30 + parts.days
    return round((days * 86_400 + float(parts.seconds)) / 86_400, 2) or 0.0


def _json(raw: str) -> Any:
    try:
        return _from_json(json.loads(raw))
    except (ValueError, RecursionError):
        return raw


def _from_json(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case int() | float():
            return _number(str(value))
        case str():
            return _text(value)
        case list():
            return tuple(_from_json(item) for item in value)
        case _:
            return str(value)


def _array(raw: str, element: Callable[[str], Any]) -> Any:
    def normal(item: ArrayItem) -> Any:
        if isinstance(item, list):
            return tuple(normal(inner) for inner in item)
        return None if item is None else element(item)

    return normal(array_items(raw))


_BY_TYPE: dict[str, Callable[[str], Any]] = {
    "bool": lambda raw: raw == "t",
    "interval": _days,
    **dict.fromkeys(("int2", "int4", "int8", "oid", "float4", "float8", "numeric"), _number),
    **dict.fromkeys(("date", "time", "timetz", "timestamp", "timestamptz"), _clock),
    **dict.fromkeys(("json", "jsonb"), _json),
    **dict.fromkeys(("uuid", "inet", "cidr", "bytea"), str),
}


@functools.cache
def _decoder(oid: int) -> Callable[[str], Any]:
    info = _builtin_types.get(oid)
    if info is None:
        return _text
    if info.array_oid == oid:
        return functools.partial(_array, element=_decoder(info.oid))
    return str if info.name.endswith("range") else _BY_TYPE.get(info.name, _text)


def _table(outcome: Outcome) -> Table:
    decoders = [_decoder(oid) for oid in outcome.oids]
    rows = [
        tuple(None if raw is None else decode(raw) for decode, raw in zip(decoders, row, strict=True))
        for row in outcome.texts
    ]
    return Table(outcome.columns, rows)


def _groups(plan: GoldPlan, outcome: Outcome, order_matters: bool | None) -> TieGroups | None:
    del order_matters
    return list(range(len(outcome.texts))) if _ORDER_BY.search(plan.sql) else None


def compare(gold: Table, candidate: Table, tie_groups: TieGroups | None) -> Comparison:
    """One permutation of the columns for all rows. As a sequence Python's equality decides, so true is 1 there."""
    counts = other_counts(gold, candidate)
    if counts is not None or not gold.rows:
        return counts or EQUAL
    width = len(gold.columns)
    orders = list(permutations(range(width))) if width <= PERMUTED_COLUMNS else [tuple(range(width))]
    if tie_groups is not None and any(_in_sequence(gold, candidate, order) for order in orders):
        return EQUAL
    mine, theirs = ([[repr(cell) for cell in row] for row in table.rows] for table in (gold, candidate))
    wanted = Counter(map(tuple, mine))
    if any(Counter(tuple(row[column] for column in order) for row in theirs) == wanted for order in orders):
        return EQUAL if tie_groups is None else OTHER_ORDER
    return OTHER_VALUES


def _in_sequence(gold: Table, candidate: Table, order: tuple[int, ...]) -> bool:
    return all(
        mine == tuple(theirs[column] for column in order)
        for mine, theirs in zip(gold.rows, candidate.rows, strict=True)
    )


def reward(status: Status, reads_table: bool) -> float | None:
    """0.1 for whatever ran, `SELECT 1` too."""
    del reads_table
    if status is Status.UNSCORABLE:
        return None
    return {Status.MATCH: 1.0, Status.MISMATCH: 0.1}.get(status, 0.0)


RECIPE = Rules(
    extract=extract,
    table=_table,
    tie_groups=_groups,
    compare=compare,
    same_value=lambda gold, candidate, is_float: repr(gold) == repr(candidate),
    columns_in_place=False,
    reward=reward,
    on_variants=False,
    takes_empty_gold=True,
)
