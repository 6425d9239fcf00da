"""New literals for known tasks, so that the policy learns to copy a value from the question instead of knowing it.

A varied gold is used only where its own hash puts it on the warm start's side of the split: by the author's rule it can
then be no holdout gold and no gold that GRPO will see, whether or not the author ever wrote it.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from services.trainer.small_policy.tasks import WARM_START_FOLD
from shared.contracts.tasks import Split
from shared.ids import fold_of, gold_key, split_of
from shared.sql import SqlSyntaxError, normalise

DATE = re.compile(r"(\d{4})-(\d\d)(?=-\d\d\b)")
NUMBER = re.compile(r"(?<![\w.\-'])\d+(?![\w.\-'])")
COLUMN_VALUES = re.compile(r"(\w+) (?:=|<>|IN) \(?('[^']*'(?:, '[^']*')*)")
VALUE = re.compile(r"'([^']*)'")
SMALLEST_NUMBER = 2
"""0 and 1 are often part of the form (`SELECT 1`, `GROUP BY 1`), not values."""
YEARS = range(1990, 2040)
DRAWS = 4
"""Tries to land on the warm start's side; 2 of 5 do."""


@dataclass(frozen=True)
class Pair:
    """A question and the gold to imitate."""

    question: str
    gold: str


class Variation:
    """Draws varied pairs; values come from those that the given pairs hold for the same column."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        values: dict[str, set[str]] = defaultdict(set)
        for pair in pairs:
            for column, listed in COLUMN_VALUES.findall(pair.gold):
                values[column].update(VALUE.findall(listed))
        self._values = {column: sorted(found) for column, found in values.items()}
        self._years = sorted({year for pair in pairs for year in _years(pair.gold)})

    def draw(self, pair: Pair, rng: Random) -> Pair:
        """The pair with other literals, or as it is when none can be changed on the right side of the split."""
        for _ in range(DRAWS):
            varied = self._replace(pair, rng)
            if varied != pair and _is_warm_start(varied.gold):
                return varied
        return pair

    def _replace(self, pair: Pair, rng: Random) -> Pair:
        new: dict[str, str] = {}
        for text in set(DATE.findall(pair.gold)):
            old = "-".join(text)
            new[old] = f"{rng.choice(self._years)}-{rng.randint(1, 12):02d}"
        for old in sorted(set(NUMBER.findall(pair.gold))):
            if int(old) >= SMALLEST_NUMBER:
                new[old] = self._number(old, rng)
        for column, listed in COLUMN_VALUES.findall(pair.gold):
            for old in VALUE.findall(listed):
                new[old] = rng.choice(self._values[column])
        new = {old: value for old, value in new.items() if len(_places(old, pair.question)) == 1}
        if len(set(new.values())) < len(new):  # two values became one: the query may mean something else
            return pair
        return Pair(_substitute(pair.question, new), _substitute(pair.gold, new))

    def _number(self, old: str, rng: Random) -> str:
        if int(old) in YEARS:
            return rng.choice(self._years)
        head = old.rstrip("0")  # round numbers stay round
        return str(rng.randint(max(SMALLEST_NUMBER, 10 ** (len(head) - 1)), 10 ** len(head) - 1)) + old[len(head) :]


def _years(gold: str) -> set[str]:
    return {year for year, _ in DATE.findall(gold)} | {n for n in NUMBER.findall(gold) if int(n) in YEARS}


def _pattern(old: str) -> str:
    return rf"(?<![\w.]){re.escape(old)}(?!\w|\.\w)"  # a full stop may follow, a decimal may not


def _places(old: str, text: str) -> list[str]:
    return re.findall(_pattern(old), text)


def _substitute(text: str, new: dict[str, str]) -> str:
    if not new:
        return text
    longest_first = sorted(new, key=len, reverse=True)
    return re.sub("|".join(map(_pattern, longest_first)), lambda found: new[found[0]], text)


def _is_warm_start(gold: str) -> bool:
    try:
        key = normalise(gold)
    except SqlSyntaxError:
        return False
    return split_of(key) is Split.TRAIN and fold_of(gold_key(key)) == WARM_START_FOLD
