"""What a schema does not declare and its rows show: columns never NULL, keys, references, dates kept as text. Pure.

Conservative: a name must suggest it and every row of every seed must agree with it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.seed_rows import Row
from shared.words import Vocabulary, singular

Rows = Sequence[Row]
Seeds = Sequence[Mapping[str, Rows]]
"""Table to rows, one mapping a seed, the main seed first. A value that is not known is absent from its row."""

KEY_ROWS = 3
"""Fewer rows prove no key."""
KEY_WORDS = ("code", "key", "no", "number", "symbol", "name")
"""A table's name and one of these name a key, should the values be distinct."""
GENERIC_KEYS = (["id"], ["code"], ["key"], ["name"], ["number"], ["uuid"])
OWN_REFERENCES = ("parent", "manager", "boss", "supervisor")
"""`<one of these>_id` without a declared key refers to the table's own key, should the values agree."""
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Named:
    """What inference needs of one column."""

    table: str
    name: str
    words: tuple[str, ...]
    kind: str


def occurs_null(seeds: Seeds, table: str, column: str) -> bool:
    """Whether some row holds NULL, or no row says anything."""
    rows = [row for seed in seeds for row in seed.get(table, ())]
    return not rows or any(row.get(column, "") is None for row in rows)


def is_distinct(seeds: Seeds, table: str, column: str) -> bool:
    """Whether every row of every seed has a known value of its own, and there are enough of them."""
    for number, seed in enumerate(seeds):
        values = [row.get(column) for row in seed.get(table, ())]
        if None in values or len(set(values)) < len(values) or (number == 0 and len(values) < KEY_ROWS):
            return False
    return True


def is_text_date(seeds: Seeds, table: str, column: str) -> bool:
    """Whether every known value is text that reads YYYY-MM-DD."""
    values = [row[column] for seed in seeds for row in seed.get(table, ()) if row.get(column) is not None]
    return bool(values) and all(isinstance(value, str) and _ISO_DATE.fullmatch(value) for value in values)


def key_of(table: str, row_words: Sequence[str], columns: Sequence[Named], seeds: Seeds) -> str | None:
    """The column that names a row of a table without a declared key."""
    ranked = [(score, column) for column in columns if (score := _key_score(row_words, column))]
    for _, column in sorted(ranked, key=lambda pair: -pair[0]):
        if not occurs_null(seeds, table, column.name) and is_distinct(seeds, table, column.name):
            return column.name
    return None


def _key_score(row_words: Sequence[str], column: Named) -> int:
    words, row = list(column.words), list(row_words)
    initials = "".join(word[0] for word in row)
    if words in (["id"], [*row, "id"]) or (len(words) == 1 and words[0] == initials + "id"):
        return 2
    return int(words[:-1] == row and words[-1] in KEY_WORDS)


def references(
    columns: Sequence[Named], keys: Mapping[str, Named], rows_named: Mapping[str, Sequence[str]], seeds: Seeds
) -> Iterator[tuple[Named, Named]]:
    """(column, key it refers to) for columns whose name ends as a key's does and whose values all occur there.

    `keys`: table to its key; `rows_named`: table to the words of its singular. Of two equally fit tables, none is it.
    """
    for column in columns:
        suited = [
            (length, key)
            for table, key in keys.items()
            if key != column and key.kind == column.kind
            if (length := _names_agree(column, key, rows_named[table])) and _values_agree(column, key, seeds)
        ]
        best = max((length for length, _ in suited), default=0)
        targets = [key for length, key in suited if length == best]
        if len(targets) == 1:
            yield column, targets[0]


def _names_agree(column: Named, key: Named, row_words: Sequence[str]) -> int:
    """How many words of the column's name point to the key; 0 for none."""
    words, own = list(column.words), list(key.words)
    full = [*row_words, *own] if own in GENERIC_KEYS else own
    if column.table == key.table:
        return int(len(words) == 2 and words[0] in OWN_REFERENCES and words[1] == full[-1] == "id")
    if words[-len(full) :] == full:
        return len(full)
    return int(column.name == key.name and own not in GENERIC_KEYS)


def _values_agree(column: Named, key: Named, seeds: Seeds) -> bool:
    for seed in seeds:
        referring = {row.get(column.name) for row in seed.get(column.table, ())} - {None}
        if not referring <= {row.get(key.name) for row in seed.get(key.table, ())}:
            return False
    return any(row.get(column.name) is not None for row in seeds[0].get(column.table, ()))


def row_words(vocabulary: Vocabulary, spelled: str) -> list[str]:
    """The words of a table's singular."""
    words = vocabulary.words(spelled)
    return [*words[:-1], singular(words[-1])] if words else []
