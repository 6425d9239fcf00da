"""What a question alone shows: its length, SQL in it, dates that two readers read differently. Pure."""

import re

from services.author.gates.reasons import Reason
from services.author.gates.said import Said

QUESTION_CHARACTERS = (20, 700)
"""From a short sentence to what a person still reads at once."""

_SQL = re.compile(
    r"\bSELECT\b.+?\bFROM\b"  # written as SQL is; "select the names of customers from Spain" is English
    r"|(?i:\bselect\s+(?:distinct\s+)?(?:\*|[\w.]+(?:\s*,\s*[\w.]+)+|\w*_\w+|\w+\s*\([^)]*\))\s+from\b)"
    r"|(?i:\b(?:count|sum|avg|min|max|round|coalesce|date_trunc)\s?\([^)]*\))"
    r"|\b(?:GROUP BY|ORDER BY|(?:LEFT|INNER|OUTER|CROSS) JOIN|IS (?:NOT )?NULL|NOT EXISTS|WHERE \w+ ?[=<>])"
    r"|```|<>|::\w|\bJOIN\b.+?\bON\b",
    re.DOTALL,
)

_SQL_WORDS = frozenset({"select", "count", "sum", "avg", "min", "max", "round", "coalesce", "date_trunc", "join"}) | {
    *("group", "order", "null", "exists", "where", "date")
}
_SQL_MARKS = re.compile(r"```|<>|::")

_UNIT = r"(?:days?|weeks?|months?|quarters?|years?|hours?)"
_RELATIVE = re.compile(
    rf"\b(?:last|past|previous|preceding)\s+(?:(?:\d+|\w+)\s+)?(?:calendar\s+|full\s+|whole\s+)?{_UNIT}\b"
    rf"|\b(?:this|current)\s+(?:week|month|quarter|year)\b|\b(?:\d+|\w+)\s+{_UNIT}\s+ago\b"
    r"|\b(?:yesterday|today|tomorrow|nowadays|year[- ]to[- ]date|ytd|so far this)\b",
    re.IGNORECASE,
)
_STEP = re.compile(
    rf"\b(?:from|to|than|with|vs\.?|versus|over|on|since|and|its|their|each)\s+(?:the|its|their|a|one)?\s*"
    rf"(?:last|previous|preceding)\s+{_UNIT}\b|\b(?:previous|preceding)\s+(?:calendar\s+)?{_UNIT}\b",
    re.IGNORECASE,
)
"""The step before in a series, "compared with the previous month": no date of today's."""
_ANCHORED = re.compile(
    rf"\b(?:last|past|previous)\s+(?:(?:\d+|\w+)\s+)?{_UNIT}\s+(?:of|in|before|up to|until|ending|to)\b"
    rf"|\b(?:first|last)\s+(?:day|week|month|quarter)\s+of\b|\beach\s+of\s+the\s+last\b.*\bof\s+\d",
    re.IGNORECASE,
)
_RELATIVE_WORDS = frozenset({"last", "past", "previous", "preceding", "this", "current", "ago", "yesterday"}) | {
    *("today", "tomorrow", "nowadays", "date", "ytd", "far")
}
"""Each match of _RELATIVE holds one: the search is made only where one is."""
_SLASHED = re.compile(r"(?<![\d/])(\d{1,2})[/.](\d{1,2})[/.](?:\d{4}|\d{2})(?![\d/])")
_TODAY = re.compile(r"\b(?:today|current date|reference date|as of|now)\b\D{0,40}\d", re.IGNORECASE)


def length_gate(question: Said) -> Reason | None:
    """A length that a person would write."""
    low, high = QUESTION_CHARACTERS
    return None if low <= len(question.text) <= high else Reason.QUESTION_LENGTH


def sql_gate(question: Said) -> Reason | None:
    """Plain language: who can write the SQL needs no model."""
    suspect = question.words & _SQL_WORDS or _SQL_MARKS.search(question.text)
    return Reason.SQL_IN_QUESTION if suspect and _SQL.search(question.text) else None


def date_gate(question: Said, notes: str) -> Reason | None:
    """No date whose day and month may be swapped, none relative to a day that neither question nor notes give."""
    swappable = (int(day) <= 12 and int(month) <= 12 and day != month for day, month in _SLASHED.findall(question.text))
    if any(swappable):
        return Reason.AMBIGUOUS_DATE
    if not question.words & _RELATIVE_WORDS or _TODAY.search(notes) or _TODAY.search(question.text):
        return None
    asked = question.text.partition("\n")[0]  # what follows explains terms, often of other questions
    found = _ANCHORED.sub(" ", _STEP.sub(" ", asked))
    return Reason.AMBIGUOUS_DATE if _RELATIVE.search(found) else None
