"""Whether a question asks for an order, and a gold without the order that nobody asked for. Pure."""

import re

import postgast

from services.author.gates.reasons import Reason
from services.author.gates.said import Said
from services.author.statement import Statement

_END = r"(?:first|last|to|at the (?:top|bottom|end))\b"
_SCALE = (
    r"(?:highest|lowest|largest|smallest|biggest|most(?: \w+)?|least(?: \w+)?|fewest|newest|oldest|latest|earliest"
    r"|best|worst|longest|shortest|cheapest|greatest|youngest|top|bottom|ascending|descending|alphabetical\w*)"
)
_ASKS = re.compile(
    r"\b(?:order(?:ed|ing)?|sort(?:ed|ing)?|rank(?:ed|ing)?|arrang(?:ed?|ing)|list(?:ed)?|shown?|sequenced?)"
    r"(?: (?:it|them|these|those|the (?:results?|rows?|list|output)|results?|rows?))?"
    r" (?:by|from|in (?:ascending|descending|alphabetical|chronological|reverse|decreasing|increasing|that|this)"
    r"|alphabetically|chronologically|according to)\b"
    r"|\b(?:sort(?:ed)?|ascending|descending|alphabetically|chronologically)\b"
    r"|\bin (?:\w+ )?(?:alphabetical|chronological|ascending|descending|increasing|decreasing|that|this|date|time"
    r"|reverse|rank|ranked|sorted) order\b|\bin (?:the )?order of\b"
    rf"|\b{_SCALE}(?: \w+){{0,3}} {_END}|\bfrom (?:the )?{_SCALE}(?: \w+){{0,2}} to\b"
    rf"|\bstart(?:ing)? (?:from|with|at) (?:the )?{_SCALE}"
    r"|\b(?:big to small|small to big|high to low|low to high|a to z|a-z|z to a|new to old|old to new)\b",
    re.IGNORECASE,
)

_ASKING_WORDS = frozenset(
    {
        *(
            "order",
            "ordered",
            "ordering",
            "sort",
            "sorted",
            "sorting",
            "rank",
            "ranked",
            "ranking",
            "arrange",
            "arranged",
        ),
        *("arranging", "list", "listed", "show", "shown", "sequence", "sequenced", "ascending", "descending"),
        *(
            "alphabetically",
            "chronologically",
            "first",
            "last",
            "to",
            "top",
            "bottom",
            "end",
            "from",
            "with",
            "at",
            "z",
        ),
    }
)
"""Each match of _ASKS holds one: the search is made only where one is."""

TIES_BROKEN = re.compile(r"\bties?\b[^.;]*|\bin case of (?:a )?ties?\b[^.;]*", re.IGNORECASE)


def asks_for_order(question: Said) -> bool:
    """Whether it says how rows are to be sorted. "Top 5" alone does not: it says which rows."""
    return bool(question.words & _ASKING_WORDS) and _ASKS.search(question.text) is not None


def order_gate(order_matters: bool, ordered: bool, rows: int) -> Reason | None:
    """Where order matters the gold gives one, or there is nothing to order. `ordered`: has an outermost ORDER BY."""
    return Reason.ORDER_MISSING if order_matters and not ordered and rows > 1 else None


def without_order(statement: Statement) -> str | None:
    """The gold without its outermost ORDER BY; None where it has none, or where a LIMIT or DISTINCT ON needs it.

    The statement's tree is changed.
    """
    select = statement.outermost
    distinct_on = any(node.WhichOneof("node") is not None for node in select.distinct_clause)
    if not select.sort_clause or select.HasField("limit_count") or select.HasField("limit_offset") or distinct_on:
        return None
    del select.sort_clause[:]
    text: str = postgast.deparse(statement.tree)
    return text
