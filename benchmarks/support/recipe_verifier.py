"""The rival: the published recipe's verifier as its facts describe it (extraction, execution pattern, comparison).

A new connection per verification; candidate, then gold, both executed each time; 5 s statement timeout; over 200 rows
is wrong. In the recipe this is a function that the trainer calls in its own process: no HTTP, and none is charged here.
"""

import datetime
import re
from decimal import Decimal
from itertools import permutations
from typing import Any

import psycopg

ROWS = 200
TIMEOUT_MS = 5000


def extract(reply: str) -> str | None:
    """Closed reasoning removed; the last fenced block, else from the first SELECT or WITH on."""
    text = re.sub(r"<think>.*?</think>", "", reply, flags=re.DOTALL)
    blocks = re.findall(r"```(?:\w+)?\s*\n?(.*?)```", text, flags=re.DOTALL)
    found = (
        blocks[-1] if blocks else (match[0] if (match := re.search(r"\b(SELECT|WITH)\b.*", text, re.DOTALL)) else "")
    )
    sql = str(found).strip().rstrip(";")
    return sql if re.match(r"(select|with)\b", sql, re.IGNORECASE) else None


def verify(conninfo: str, reply: str, gold: str) -> bool:
    """Whether the reply's result is the gold's."""
    sql = extract(reply)
    if sql is None:
        return False
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"SET statement_timeout = {TIMEOUT_MS}")
        try:
            candidate = connection.execute(sql.encode()).fetchmany(ROWS + 1)
        except psycopg.Error:
            return False
        expected = connection.execute(gold.encode()).fetchmany(ROWS + 1)
    return len(candidate) <= ROWS and _equal(expected, candidate, ordered="order by" in gold.lower())


def _equal(gold: list[tuple[Any, ...]], candidate: list[tuple[Any, ...]], ordered: bool) -> bool:
    if len(gold) != len(candidate):
        return False
    if not gold:
        return True
    columns = len(gold[0])
    if columns != len(candidate[0]):
        return False
    wanted = [tuple(map(_normal, row)) for row in gold]
    found = [tuple(map(_normal, row)) for row in candidate]
    orders = permutations(range(columns)) if columns <= 5 else [tuple(range(columns))]
    for order in orders:
        rows = [tuple(row[i] for i in order) for row in found]
        if rows == wanted if ordered else sorted(map(repr, rows)) == sorted(map(repr, wanted)):
            return True
    return False


def _normal(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float | Decimal):
        return round(float(value), 2) + 0.0
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() / 86400, 2)
    if isinstance(value, list):
        return tuple(map(_normal, value))
    text = str(value).strip().lower()
    try:
        return round(float(text.replace(",", "").replace("$", "")), 2) + 0.0
    except ValueError:
        return text
