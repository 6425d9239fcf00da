"""What a domain tells everyone who is asked: notes, schema comments, columns and keys. Built once, read by gates."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import postgast

from services.author.catalogue import Catalogue, Column, Kind
from services.author.gates.said import Said
from shared.domain import Bundle

_COMMENT_TOKENS = (postgast.pg_query_pb2.SQL_COMMENT, postgast.pg_query_pb2.C_COMMENT)
_LABELS = ("name", "title", "label", "code", "description", "symbol")
"""Words that the name of a column ends in when it tells a row to a person."""

_VALUE = re.compile(r"\w[\w-]*")
_MEANING = re.compile(r"['\"]?([\w.-]+)['\"]?\s*(?:=|\bmeans\b|\bstands for\b|->|→)\s*([^,;.|/\n]+)")
TERM_LETTERS = 4
"""Shorter words of a term need not stand in the question."""


@dataclass(frozen=True)
class Note:
    """One line of the notes."""

    term: frozenset[str]
    """Words of what it explains, before a colon; empty: it says something of everything."""
    text: str

    def is_drawn_on(self, said: Said) -> bool:
        """Whether all words of its term stand there in some form."""
        return all(said.knows_word(word) for word in self.term)


@dataclass(frozen=True)
class Knowledge:
    """A domain beside its rows."""

    notes: tuple[Note, ...]
    meanings: dict[str, frozenset[str]]
    """Value to the words that notes or comments explain it with: `2 = closed`, `X means lost`."""
    listed: frozenset[str]
    """Values that the schema lists in comments or CHECKs, as written."""
    keys: frozenset[str]
    """Names of columns that identify a row here or elsewhere."""
    facts: frozenset[str]
    """Names of columns that are neither keys nor dates: what they hold is asked for by a name."""
    comments: dict[str, str]
    """Column name to what the schema's comments say of it."""

    @staticmethod
    def of(bundle: Bundle, catalogue: Catalogue) -> "Knowledge":
        """Read from a bundle and its catalogue."""
        columns = [column for table in catalogue.tables.values() for column in table.columns]
        keys = frozenset(column.name for column in columns if catalogue.is_key(column))
        dated = (Kind.DATE, Kind.TIMESTAMP, Kind.OTHER)
        comments = _comments(bundle.schema_sql)
        quoted = re.findall(r"'((?:[^']|'')*)'", bundle.schema_sql)
        return Knowledge(
            notes=tuple(_notes(bundle.notes)),
            meanings=_meanings([bundle.notes, *comments]),
            listed=frozenset([*quoted, *_VALUE.findall(" ".join([*comments, *quoted]))]),
            keys=keys,
            facts=frozenset(column.name for column in columns if column.kind not in dated) - keys,
            comments=_column_comments(columns),
        )

    @cached_property
    def all_notes(self) -> str:
        """The notes as one text."""
        return "\n".join(note.text for note in self.notes)

    def told(self, question: Said) -> Said:
        """The question with every note that it draws on: those whose term stands in it, or in a note drawn on."""
        text, waiting = question.text, list(self.notes)
        while drawn := [note for note in waiting if note.is_drawn_on(Said(text))]:
            text = "\n".join([text, *(note.text for note in drawn)])
            waiting = [note for note in waiting if note not in drawn]
        return question if text is question.text else Said(text)

    def is_label(self, name: str) -> bool:
        """Whether a column tells a row to a person: its name ends in a word such as `name` or `title`."""
        return name.lower().endswith(_LABELS)


def _comments(sql: str) -> list[str]:
    """The comments of a script."""
    tokens = postgast.scan(sql).tokens
    encoded = sql.encode()
    return [encoded[t.start : t.end].decode() for t in tokens if t.token in _COMMENT_TOKENS]


def _column_comments(columns: Sequence[Column]) -> dict[str, str]:
    """Columns of one name in several tables share their comments."""
    found: dict[str, str] = {}
    for column in columns:
        found[column.name] = f"{found.get(column.name, '')} {column.comment}"
    return found


def _notes(notes: str) -> Iterator[Note]:
    """A line may explain several terms, each ended by a colon: its sentences are notes of their own then."""
    for line in notes.splitlines():
        for sentence in re.split(r"(?<=\.)\s+(?=[^:]*:)", line.strip(" -*#\t")):
            term, colon, _ = sentence.partition(":")
            words = Said(term).words if colon else frozenset[str]()
            if sentence:
                yield Note(frozenset(word for word in words if len(word) >= TERM_LETTERS) or words, sentence)


def _meanings(texts: Sequence[str]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for value, explained in _MEANING.findall("\n".join(texts)):
        words = frozenset(word for word in Said(explained).words if len(word) >= TERM_LETTERS)
        found[value.lower()] = found.get(value.lower(), frozenset()) | words
    return found
