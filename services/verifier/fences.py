"""The fenced code blocks of a reply. Pure; linear in its length.

Follows CommonMark where that helps (a fence is three or more backticks or tildes, closed by as many alone on their
line) and models where they do not: one-line fences, a closing mark behind the last line, a new fence before the old one
ended.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_MARK = re.compile(r"```+|~~~+")
_LABEL = re.compile(r"[ \t]*(?P<label>[A-Za-z0-9_+#.-]*)[ \t]*")
_REST_IS_BLANK = re.compile(r"[ \t]*(?:\n|\Z)")
_QUOTE_PREFIX = re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE)
_BEFORE_A_FENCE = " \t>*+-.)0123456789"
"""What may stand before a fence on its line: indentation, a quotation mark, a list's bullet."""

_SQL_LABELS = frozenset({"sql", "postgresql", "postgres", "psql", "pgsql", "plpgsql"})

_SPACE_AND_COMMENTS = re.compile(r"(?:[\s(]++|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+")
CTE = r"WITH\s+(?:RECURSIVE\s+)?(?:\"[^\"]+\"|\w+)\s*(?:\([^()]*\)\s*)?AS\s*(?:(?:NOT\s+)?MATERIALIZED\s*)?\("
"""How a WITH clause begins; the prose word is followed by something else."""

_SQL_BEGINS = re.compile(
    rf"{CTE}|(?:SELECT|VALUES|TABLE|EXPLAIN|INSERT|UPDATE|DELETE|MERGE|CREATE|ALTER|DROP|TRUNCATE|GRANT|REVOKE|COPY|"
    r"CALL|DO|SET|BEGIN|COMMIT)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a text."""

    start: int
    """Where its opening mark begins; `end` is behind its closing one."""
    end: int
    label: str
    """Lower case; empty without one."""
    content: str
    closed: bool

    @property
    def is_sql(self) -> bool:
        """Labelled as SQL, or it begins as a statement. An empty block is none."""
        if not self.content:
            return False
        beginning = _SPACE_AND_COMMENTS.match(self.content)
        begins = _SQL_BEGINS.match(self.content, beginning.end() if beginning else 0)
        return self.label in _SQL_LABELS or begins is not None


@dataclass(frozen=True)
class _Opening:
    mark: re.Match[str]
    label: str
    content_start: int
    quoted: bool
    """Inside a `>` quotation."""
    own_line: bool
    """Nothing but its label stands behind the mark."""


def fenced_blocks(text: str) -> list[Block]:
    """In their order; the last may be unclosed. A fence inside a longer one is a block of its own."""
    blocks: list[Block] = []
    opening: _Opening | None = None
    within: re.Match[str] | None = None
    for mark, prefix in _marks(text):
        follows = _opening(text, mark, prefix)
        if opening is None:
            opening, within = follows, None
        elif _closes(text, opening, mark, prefix):
            blocks.append(_block(text, opening, mark.start(), mark.end()))
            opening = None
        elif follows is not None and follows.label and prefix is not None:
            # The old fence was never closed: this one is the later attempt, or what a longer fence quotes.
            blocks.append(_block(text, opening, mark.start(), mark.start()))
            opening, within = follows, None
        elif within is None and mark[0] >= opening.mark[0]:
            within = mark
    if opening is not None and within is not None:  # prose went on right behind the closing mark
        blocks.append(_block(text, opening, within.start(), within.end()))
    elif opening is not None:
        blocks.append(_block(text, opening, len(text), None))
    return blocks


def without(blocks: Sequence[Block], text: str) -> str:
    """The text with a blank line in each block's place."""
    pieces = []
    position = 0
    for block in blocks:
        pieces.append(text[position : block.start])
        position = block.end
    return "\n\n".join([*pieces, text[position:]])


def _marks(text: str) -> list[tuple[re.Match[str], str | None]]:
    """Each run of backticks or tildes, and what stands before it on its line; None when that is more than a prefix."""
    found: list[tuple[re.Match[str], str | None]] = []
    position = 0
    for mark in _MARK.finditer(text):
        line = text.rfind("\n", position, mark.start()) + 1
        prefix = text[line : mark.start()] if line or not position else "x"
        found.append((mark, None if prefix.strip(_BEFORE_A_FENCE) else prefix))
        position = mark.end()
    return found


def _opening(text: str, mark: re.Match[str], prefix: str | None) -> _Opening | None:
    """Tildes open a block only at the beginning of a line; in prose they strike out."""
    if mark[0][0] == "~" and prefix is None:
        return None
    found = _LABEL.match(text, mark.end())
    label, after = (found["label"], found.end()) if found else ("", mark.end())
    own_line = after == len(text) or text[after] == "\n"
    is_label = label.lower() in _SQL_LABELS or (own_line and label.upper() not in ("SELECT", "WITH"))
    start = after if is_label else mark.end()
    return _Opening(mark, label.lower() if is_label else "", start, ">" in (prefix or ""), own_line and is_label)


def _closes(text: str, opening: _Opening, mark: re.Match[str], prefix: str | None) -> bool:
    """A block on lines of its own is closed at the beginning or the end of a line: its SQL may hold a mark within."""
    if mark[0][0] != opening.mark[0][0] or len(mark[0]) < len(opening.mark[0]):
        return False
    if not opening.own_line:
        return True
    alone = _REST_IS_BLANK.match(text, mark.end()) is not None
    return alone or (prefix is not None and not text[mark.end() : mark.end() + 1].isalnum())


def _block(text: str, opening: _Opening, content_end: int, end: int | None) -> Block:
    """`end` None: unclosed."""
    content = text[opening.content_start : content_end]
    if opening.quoted:
        content = _QUOTE_PREFIX.sub("", content)
    return Block(opening.mark.start(), end or len(text), opening.label, content.strip(), end is not None)
