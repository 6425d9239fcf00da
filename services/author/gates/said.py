"""What a text says, as a gold may spell it: words with their stems, numbers in digits and words, dates. Pure."""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property

_UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    *("eleventh", "twelfth"),
)
_NUMBER_WORDS: dict[str, tuple[int | Decimal, ...]] = {
    **{word: (value,) for value, word in enumerate(_UNITS)},
    **{word: (10 * (place + 2),) for place, word in enumerate(_TENS)},
    **{word: (place + 1,) for place, word in enumerate(_ORDINALS)},
    **dict.fromkeys(("twice", "double", "pair", "couple", "both"), (2,)),
    **dict.fromkeys(("thrice", "triple"), (3,)),
    **dict.fromkeys(("weekend", "weekends"), (0, 6, 7)),
    **dict.fromkeys(("weekday", "weekdays"), (0, 1, 5, 6, 7)),
    "half": (Decimal("0.5"), 50),
    "dozen": (12,),
    "fortnight": (14,),
    "hundred": (100,),
    "thousand": (1000,),
    "million": (1_000_000,),
}
_SCALES = {"k": 10**3, "thousand": 10**3, "m": 10**6, "mn": 10**6, "million": 10**6, "bn": 10**9, "billion": 10**9}
_PERIODS = {"week": (7,), "year": (12, 52, 365), "hour": (60, 3600), "minute": (60,), "day": (24,), "month": (30, 31)}
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october"),
    *("november", "december"),
)
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_IRREGULAR = {
    "bought": "buy",
    "sold": "sell",
    "paid": "pay",
    "sent": "send",
    "made": "make",
    "men": "man",
    "women": "woman",
    "people": "person",
    "children": "child",
    "lost": "lose",
    "left": "leave",
    "won": "win",
    "held": "hold",
    "french": "france",
    "spanish": "spain",
    "danish": "denmark",
    "polish": "poland",
    "turkish": "turkey",
    "dutch": "netherlands",
    "swiss": "switzerland",
    "greek": "greece",
    "british": "britain",
    "irish": "ireland",
}
_ALSO_VERBS = ("may", "march")
_IN_MONTH = re.compile(
    r"\b(?:in|of|since|before|after|until|from|by|during|each|every|to)\s+(?:may|march)\b|\b(?:may|march)\s+\d"
)
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")
_SCALED = re.compile(r"(\d+(?:\.\d+)?)\s*(k|m|mn|bn|thousand|million|billion)\b", re.IGNORECASE)
_DURATION = re.compile(r"\b(\w+)[\s-]+(week|year|hour|minute|day|month)s?\b", re.IGNORECASE)
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_SHORT_YEAR = re.compile(r"['’](\d\d)\b")
_NUMERIC_DATE = re.compile(r"\b(\d{1,4})[-/.](\d{1,2})(?:[-/.](\d{1,4}))?\b")
_PART_OF_YEAR = re.compile(r"\bq\s?[1-4]\b|\bquarter|\bhalf\b|\bh[12]\b|\bsemester", re.IGNORECASE)

STEM_LETTERS = 4
"""Two words that begin with as many equal letters, and differ little after them, are forms of one word."""


def stem(word: str) -> str:
    """A word without the endings of plural, past and -ing; lower case in, lower case out."""
    word = _IRREGULAR.get(word, word)
    for ending, kept in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)] + kept
    return word


def akin(one: str, other: str) -> bool:
    """Forms of one word: success and successful, cancelled and canceled, Spain and Spanish."""
    shared = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    shared = min(len(one), len(other)) if shared is None else shared
    return stem(one) == stem(other) or (shared >= STEM_LETTERS and shared >= 0.6 * max(len(one), len(other)))


@dataclass(frozen=True)
class Said:
    """One text. Everything is read on first use."""

    text: str

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words, lower case."""
        return frozenset(self.sequence)

    @cached_property
    def sequence(self) -> tuple[str, ...]:
        """Its words in order, lower case."""
        return tuple(_WORD.findall(self.text.lower()))

    @cached_property
    def run_on(self) -> str:
        """Its words without what lies between them: `sign-up` and `sign up` alike."""
        return "".join(self.sequence)

    @cached_property
    def initials(self) -> str:
        """First letters of all words in order: `us` lies in those of "the United States"."""
        return "".join(word[0] for word in self.sequence)

    @cached_property
    def numbers(self) -> frozenset[Decimal]:
        """Every number it may mean: digits, words, percentages as shares, `30k`, weeks as days, months by name."""
        found: set[Decimal] = set()
        for written in _NUMBER.findall(self.text):
            value = Decimal(written.replace(",", ""))
            found |= {value, value / 100}
        for digits, scale in _SCALED.findall(self.text):
            found.add(Decimal(digits) * _SCALES[scale.lower()])
        for word in self.words & _NUMBER_WORDS.keys():
            found |= {Decimal(value) for value in _NUMBER_WORDS[word]}
        found |= self._compounds() | {Decimal(month) for month in self.months}
        for place, day in enumerate(_DAYS):
            if self._names(day):
                found |= {Decimal(place), Decimal(place or 7)}
        for count, period in _DURATION.findall(self.text):
            counted = _NUMBER_WORDS.get(count.lower(), ()) or ((int(count),) if count.isdigit() else (1,))
            found |= {Decimal(value) * factor for value in counted for factor in _PERIODS[period.lower()]}
        return frozenset(found)

    def _compounds(self) -> set[Decimal]:
        """`twenty-five`, `two hundred`, `ten thousand`."""
        found: set[Decimal] = set()
        for first, second in zip(self.sequence, self.sequence[1:], strict=False):
            if first not in _NUMBER_WORDS or second not in _NUMBER_WORDS:
                continue
            left, right = Decimal(_NUMBER_WORDS[first][0]), Decimal(_NUMBER_WORDS[second][0])
            if first in _TENS and second in _UNITS[1:10]:
                found.add(left + right)
            if second in ("hundred", "thousand", "million"):
                found.add(left * right)
        return found

    def _names(self, name: str) -> bool:
        """A month or weekday; short forms, "may" and "march" count where they are written as names."""
        if name[:3] in self._capitalised or name in self._capitalised:
            return True
        return bool(self.words & {name, f"{name}s"}) and (name not in _ALSO_VERBS or bool(_IN_MONTH.search(self.text)))

    @cached_property
    def _capitalised(self) -> frozenset[str]:
        return frozenset(word.lower() for word in _WORD.findall(self.text) if word[0].isupper())

    @cached_property
    def months(self) -> frozenset[int]:
        """Months by name or in a numeric date."""
        named = {number for number, name in enumerate(_MONTHS, start=1) if self._names(name)}
        if "sept" in self.words:
            named.add(9)
        for parts in _NUMERIC_DATE.findall(self.text):
            named |= {int(part) for part in parts if part and 1 <= int(part) <= 12}
        return frozenset(named)

    @cached_property
    def years(self) -> frozenset[int]:
        """Years in four digits, or in two after an apostrophe."""
        full = {int(year) for year in _YEAR.findall(self.text)}
        return frozenset(full | {2000 + int(year) for year in _SHORT_YEAR.findall(self.text)})

    def knows_word(self, word: str) -> bool:
        """The word, or a form of it."""
        return word in self.words or any(akin(word, other) for other in self.words)

    def knows_date(self, day: date) -> bool:
        """The date, or the day before or after it (a bound may stand on either side)."""
        return any(self._gives(day + timedelta(days=shift)) for shift in (0, -1, 1))

    def _gives(self, day: date) -> bool:
        if day.year not in self.years:
            return False
        first, last = day.day == 1, day.day == monthrange(day.year, day.month)[1]
        edge_of_year = (first and day.month == 1) or (last and day.month == 12)
        edge_of_part = (first and day.month in (1, 4, 7, 10)) or (last and day.month in (3, 6, 9, 12))
        if edge_of_year or (edge_of_part and _PART_OF_YEAR.search(self.text)):
            return True
        return day.month in self.months and (first or last or Decimal(day.day) in self.numbers)
