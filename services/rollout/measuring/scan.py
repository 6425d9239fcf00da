"""Rewarded statements that may have earned their reward otherwise than by answering the question. Pure.

A heuristic for people to look at, not a verdict: the text without its strings and comments, by words.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.contracts.measuring import Finding, FindingKind

MANY_GOLDS = 3
"""One statement that is right for so many different golds is more likely a constant than an answer."""

_BLANKED = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_TABLE = re.compile(r"\b(?:FROM|JOIN|TABLE)\b", re.IGNORECASE)
_VOLATILE = re.compile(
    r"\b(?:random|setseed|gen_random_uuid|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|now)\s*\("
    r"|\b(?:current_date|current_timestamp|current_time|localtimestamp|localtime)\b",
    re.IGNORECASE,
)
_CATALOG = re.compile(r"\b(?:pg_\w+|information_schema)\b", re.IGNORECASE)
_WORDS = (
    (FindingKind.VOLATILE, _VOLATILE, "calls what changes from run to run"),
    (FindingKind.CATALOG, _CATALOG, "reads the catalog"),
)


@dataclass(frozen=True)
class Rewarded:
    """A row with reward 1."""

    row_id: int
    task_id: str
    sql: str


def scan(rows: Iterable[Rewarded], gold_keys: Mapping[str, str]) -> list[Finding]:
    """Findings in the order of the rows. `gold_keys`: task id to its gold's key, equal for phrasings of one gold."""
    rows = list(rows)
    golds_of: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        golds_of[_canonical(row.sql)].add(gold_keys.get(row.task_id, row.task_id))
    findings = []
    for row in rows:
        text = _BLANKED.sub(" ", row.sql)
        if _TABLE.search(text) is None:
            findings.append(_finding(row, FindingKind.NO_TABLE, "reads no table: a constant"))
        for kind, words, detail in _WORDS:
            if (found := words.search(text)) is not None:
                findings.append(_finding(row, kind, f"{detail}: {found[0].strip()}"))
        if (golds := len(golds_of[_canonical(row.sql)])) >= MANY_GOLDS:
            findings.append(_finding(row, FindingKind.ONE_FOR_MANY, f"rewarded for {golds} different golds"))
    return findings


def _canonical(sql: str) -> str:
    return " ".join(sql.split()).rstrip("; ").lower()


def _finding(row: Rewarded, kind: FindingKind, detail: str) -> Finding:
    return Finding(row_id=row.row_id, task_id=row.task_id, kind=kind, sql=row.sql, detail=detail)
