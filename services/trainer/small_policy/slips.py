"""Slips: what a model gets wrong on a database that it half knows, so that training has something to unlearn.

A base model writes `<=` for "under" now and then, or forgets a condition. A policy that was only ever shown golds does
not: what it misses, it has not learnt, and reward from other questions teaches it little. So a share of the warm start
is learnt with one slip. The policy then samples right and wrong forms alike, as a base model does.
"""

import re
from collections.abc import Callable
from random import Random

Slip = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]
"""Where a slip can happen, and what is then written instead."""

BOUNDARIES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
AGGREGATES = {"sum": "avg", "avg": "sum", "min": "max", "max": "min"}

SLIPS: tuple[Slip, ...] = (
    (re.compile(r" (<=?|>=?) "), lambda found: f" {BOUNDARIES[found[1]]} "),
    (re.compile(r"\b(sum|avg|min|max)\("), lambda found: f"{AGGREGATES[found[1]]}("),
    (re.compile(r" DESC\b"), lambda found: ""),
    (re.compile(r"\bcount\(DISTINCT "), lambda found: "count("),
    (re.compile(r" AND \w+ (?:=|<>|<=?|>=?) (?:'[^']*'|[\d.]+)(?=[ )]|$)"), lambda found: ""),
)
"""A boundary, an aggregate, an order's direction, duplicates, a condition that is forgotten."""


def slip(gold: str, rng: Random) -> str:
    """The gold with one slip, drawn among all places where one can happen; as it is where none can."""
    places = [(found, write) for pattern, write in SLIPS for found in pattern.finditer(gold)]
    if not places:
        return gold
    found, write = rng.choice(places)
    return gold[: found.start()] + write(found) + gold[found.end() :]
