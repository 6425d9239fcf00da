"""Names as people say them: `order_items` → "order items", `ordered_on` → "ordered date", `sbCustName` → "name"."""

import re
from collections import Counter
from collections.abc import Sequence

from services.author.catalogue import Catalogue, Column, ForeignKey, Kind, Table
from services.author.teachers.grammar.styles import Style
from shared.words import UNCOUNTABLE, is_participle, plural, singular

DATE_ENDINGS = ("on", "at", "date", "time")
UNITS = {"kg": "kg", "cm": "cm", "km": "km", "usd": "dollars", "eur": "euros", "hrs": "hours", "min": "minutes"}
NO_NOUN_ENDINGS = ("off", "ful", "able", "ive", "1", "2")
ADJECTIVES = ("open", "high", "low", "close", "min", "max", "minimum", "maximum", "net", "gross", "first", "last")
"""Names of columns that say which of a table's things they hold: the `low` of daily prices is a low price."""
LABEL_WORDS = 4
"""A longer comment describes, it does not name."""


def listing(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def several(label: str) -> str:
    """The plural of a column's label: `weights in kg`, `dates of birth`, `percent off values`."""
    for link in (" in ", " of "):
        head, found, rest = label.partition(link)
        if found:
            return plural(head) + link + rest
    last = label.rpartition(" ")[2]
    is_noun = not is_participle(last) and last not in UNCOUNTABLE and not last.endswith(NO_NOUN_ENDINGS)
    return plural(label) if is_noun else f"{label} values"


class Labels:
    """Names for the tables and columns of one catalogue: the notes', else from names and comments."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._rows: dict[str, str] = {}
        self._tables: dict[str, str] = {}
        for table in catalogue.tables.values():
            self._tables[table.name], self._rows[table.name] = _table_labels(table, catalogue)
        self._references = {(key.table, key.column): key.references for key in catalogue.foreign_keys}
        self._own: dict[Column, str] = {}
        for table in catalogue.tables.values():
            self._own |= self._column_labels(table)
        self._roles = {key: self._role(key) for key in catalogue.foreign_keys}

    def _role(self, key: ForeignKey) -> str:
        label, row = self._own[self._catalogue.column(key.table, key.column)], self._rows[key.references]
        return row if label in (f"{row} name", f"{row} code") else label.removesuffix(" id")

    def _column_labels(self, table: Table) -> dict[Column, str]:
        """Distinct within the table: where two columns would be called alike, both keep all words of their names."""
        first = {column.words[0] for column in table.columns if len(column.words) > 1}
        is_prefix = len(table.columns) >= 3 and len(first) == 1 and all(len(c.words) > 1 for c in table.columns)
        found = {column: self._column_label(column, table, int(is_prefix)) for column in table.columns}
        times = Counter(found.values())
        return {c: label if times[label] == 1 else " ".join(c.words) for c, label in found.items()}

    def _column_label(self, column: Column, table: Table, skipped: int) -> str:
        if column.label:
            return column.label
        words = column.words[skipped:]
        row = self._rows[self._references.get((column.table, column.name), column.table)]
        is_short = len(words) == 1 and re.fullmatch(r"[a-z]id", words[0])  # `aid`, the id of an author
        is_cut = len(words) == 2 and words[1] == "id" and len(words[0]) > 2 and row.startswith(words[0])  # `doc_id`
        if self._catalogue.is_key(column):
            if is_short or is_cut:
                return f"{row} id"
            if not table.primary_key and table.is_all_integers and words[-1] != "id":
                return " ".join(words) + " id"
        if len(words) == 1 and words[0] in ADJECTIVES:
            return f"{words[0]} {self._rows[table.name].split()[-1]}"
        return _label(words, column)

    def table(self, name: str) -> str:
        """The plural: `order items`."""
        return self._tables[name]

    def row(self, name: str) -> str:
        """The singular: `order item`."""
        return self._rows[name]

    def own(self, column: Column) -> str:
        """The label where only its own table is spoken of."""
        return self._own[column]

    def full(self, column: Column) -> str:
        """The label where several tables are spoken of: names the table unless the column's name does."""
        return _prefixed(self._rows[column.table], self._own[column])

    def by_role(self, key: ForeignKey, column: Column) -> str:
        """The label of a column of the referenced table, told by what that row is to the referencing one."""
        return _prefixed(self.role(key), self._own[column])

    def ties(self, column: Column, label: str, style: Style, shown: Sequence[Column]) -> str:
        """How ties are decided: by the lower value; text alphabetically, and by which where it is not `shown`."""
        if column.kind is not Kind.TEXT:
            return style.ties.format(l=label)
        return style.ties_of_text if column in shown else f"{style.ties_of_text} by {label}"

    def role(self, key: ForeignKey) -> str:
        """What the referenced row is to the referencing one: `manager_id` → `manager`."""
        return self._roles[key]

    def participle(self, column: Column) -> str | None:
        """`ordered` for `ordered_on`; None where the name is no participle."""
        stem = _date_stem(column.words)
        return " ".join(stem) if stem and is_participle(stem[-1]) else None


def _prefixed(row: str, label: str) -> str:
    return label if label.startswith(row) else f"{row} {label}"


def _table_labels(table: Table, catalogue: Catalogue) -> tuple[str, str]:
    """What its rows are called, and one of them."""
    if table.label:
        return plural(table.label), singular(table.label)
    words = list(table.words) or [table.name]
    if len(words) > 1 and is_participle(words[-1]):  # payments received
        head, last = " ".join(words[:-1]), words[-1]
        return f"{plural(head)} {last}", f"{singular(head)} {last}"
    name = " ".join(words)
    is_link = len(table.columns) > 1 and all(catalogue.is_key(column) for column in table.columns)
    if words[-1] in UNCOUNTABLE or (is_link and (len(words) == 1 or name == singular(name))):
        return f"{singular(name)} records", f"{singular(name)} record"
    return plural(name), singular(name)


def _date_stem(words: Sequence[str]) -> Sequence[str]:
    """`ordered` of `ordered_on`; nothing where the name does not end as a date's does."""
    return words[:-1] if len(words) > 1 and words[-1] in DATE_ENDINGS else ()


def _label(words: Sequence[str], column: Column) -> str:
    stem = _date_stem(words) if column.kind in (Kind.DATE, Kind.TIMESTAMP) else ()
    if stem:
        return " ".join(stem) if stem[-1] == "date" else " ".join(stem) + " date"
    if (said := _acronym_in(column.comment, words)) is not None:
        return said
    if column.kind is Kind.BOOLEAN and len(words) > 1 and words[0] in ("is", "has"):
        return "-".join(words[1:]) + " flag"
    if len(words) > 1 and words[-1] == "str":
        words = words[:-1]
    if len(words) > 1 and words[-1] in UNITS:
        return " ".join(words[:-1]) + " in " + UNITS[words[-1]]
    return " ".join(words)


def _acronym_in(comment: str, words: Sequence[str]) -> str | None:
    """A short comment where the name is its initials or no word: `ndc -- National Drug Code`."""
    head = re.split(r"[,;.:(\[]", comment)[0].strip()
    said = re.findall(r"[A-Za-z]+", head)
    if not 1 <= len(said) <= LABEL_WORDS or "null" in head.lower():
        return None
    is_acronym = "".join(words) == "".join(word[0].lower() for word in said)
    if re.search(r"\d\s*-\s*\d", head):  # a range of values
        return None
    is_opaque = any(word.isalpha() and word not in UNITS and not re.search("[aeiouy]", word) for word in words)
    return head.lower() if is_acronym or is_opaque else None
