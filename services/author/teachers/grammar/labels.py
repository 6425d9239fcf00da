"""Identifiers as people say them: `order_items` → "order items", `ordered_on` → "ordered date"."""

from collections.abc import Sequence

from services.author.catalogue import Catalogue, Column, ForeignKey, Kind
from services.author.teachers.grammar.styles import Style

DATE_SUFFIXES = ("_on", "_at", "_date", "_dt", "_time")
UNITS = {"kg": "kg", "cm": "cm", "km": "km", "usd": "dollars", "eur": "euros", "hrs": "hours", "min": "minutes"}
IRREGULAR_PARTICIPLES = {"paid", "sent", "sold", "made", "born", "built"}


def singular(noun: str) -> str:
    """`categories` → `category`, `statuses` → `status`, `orders` → `order`; other words stay."""
    if noun.endswith(("us", "is", "ss")):
        return noun
    if noun.endswith("ies"):
        return noun[:-3] + "y"
    if noun.endswith(("xes", "ches", "shes", "sses", "tuses", "nuses")):
        return noun[:-2]
    return noun[:-1] if noun.endswith("s") else noun


def plural(noun: str) -> str:
    """Inverse of `singular`; a noun that is plural already stays."""
    if noun != singular(noun):
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def listing(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


class Labels:
    """Names for the tables and columns of one catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._own = {c: _own_label(c) for table in catalogue.tables.values() for c in table.columns}

    def table(self, name: str) -> str:
        """The plural: `order items`."""
        return plural(name.replace("_", " "))

    def row(self, name: str) -> str:
        """The singular: `order item`."""
        return singular(name.replace("_", " "))

    def own(self, column: Column) -> str:
        """The label where only its own table is spoken of."""
        return self._own[column]

    def full(self, column: Column) -> str:
        """The label where several tables are spoken of: names the table unless the column's name does."""
        label, row = self._own[column], self.row(column.table)
        return label if label.startswith(row) else f"{row} {label}"

    def ties(self, column: Column, label: str, style: Style) -> str:
        """How ties are decided: by the lower value, alphabetically for text."""
        return style.ties_of_text if column.kind is Kind.TEXT else style.ties.format(l=label)

    def role(self, key: ForeignKey) -> str:
        """What the referenced row is to the referencing one: `manager_id` → `manager`."""
        return key.column.removesuffix("_id").replace("_", " ")

    def participle(self, column: Column) -> str | None:
        """`ordered` for `ordered_on`; None where the name is no participle."""
        stem = _date_stem(column.name)
        is_one = stem is not None and (stem.endswith("ed") or stem in IRREGULAR_PARTICIPLES)
        return stem.replace("_", " ") if is_one and stem is not None else None


def _date_stem(name: str) -> str | None:
    for suffix in DATE_SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return None


def _own_label(column: Column) -> str:
    stem = _date_stem(column.name) if column.kind in (Kind.DATE, Kind.TIMESTAMP) else None
    if stem is not None:
        return stem.replace("_", " ") + " date"
    words = column.name.split("_")
    if len(words) > 1 and words[-1] in UNITS:
        return " ".join(words[:-1]) + " in " + UNITS[words[-1]]
    return " ".join(words)
