"""From the raw first assistant turn to one SQL statement. Pure; the only place where replies become SQL.

Reasoning is dropped first, closed or not, so that a draft inside it earns nothing. Then the last fenced block wins,
else the last statement that begins with SELECT or WITH. What the token budget cut off is no statement.
"""

import re
from dataclasses import dataclass

from shared.contracts.verifier import FinishReason


@dataclass(frozen=True)
class Extraction:
    """`sql` is None when the reply holds no statement; `reason` says why, or where the statement was found."""

    sql: str | None
    reason: str


_CLOSED_THINK = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_THINK_OPEN = re.compile(r"<think>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</think>", re.IGNORECASE)

_FENCE = re.compile(r"(?P<mark>`{3,}|~{3,})")
_LANGUAGE = re.compile(r"[ \t]*(?P<tag>[A-Za-z0-9_+#.-]*)[ \t]*")
_SQL_TAGS = frozenset({"sql", "postgresql", "postgres", "psql", "pgsql", "plpgsql"})

_OPENING = r"(?:(?:--[^\n]*\n|/\*.*?\*/|\s)*\(?)*"
_BEGINS = r"(?:SELECT\b|WITH\s+(?:RECURSIVE\s+)?(?:\"[^\"]+\"|\w+)\s*(?:\([^()]*\)\s*)?AS\b)"
_LINE_START = re.compile(rf"(?:\A|(?<=\n))[ \t>*]*(?P<start>\(*\s*{_BEGINS})", re.IGNORECASE)
_MID_LINE = re.compile(rf"(?P<start>\(*(?:(?<=:)\s*{_BEGINS}|\b{_BEGINS}))")
"""Within a line only upper-case keywords begin a statement, so that "I select the rows" does not."""

_CLAUSE = re.compile(
    r"\s*(?:--|/\*|[(),;|]|(?:SELECT|FROM|WHERE|GROUP|HAVING|ORDER|LIMIT|OFFSET|FETCH|WINDOW|UNION|INTERSECT|EXCEPT|JOIN|"
    r"LEFT|RIGHT|FULL|INNER|CROSS|NATURAL|ON|USING|AND|OR|CASE|WHEN|THEN|ELSE|END|AS|WITH|VALUES|FILTER)\b)",
    re.IGNORECASE,
)
_SCAN = re.compile(
    r"(?P<skip>'(?:[^']|'')*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|"
    r"(?P<dollar>\$(?:[A-Za-z_]\w*)?\$).*?(?:(?P=dollar)|\Z))"
    r"|(?P<blank>\n[ \t]*\n)|(?P<open>\()|(?P<close>\))|(?P<end>;)",
    re.DOTALL,
)


def extract(reply: str, finish_reason: FinishReason | None = None) -> Extraction:
    """The statement a reply answers with. `finish_reason` None counts as `stop`."""
    text = _without_reasoning(reply)
    cut = finish_reason in (FinishReason.LENGTH, FinishReason.ABORT)
    if not text.strip():
        return Extraction(None, "nothing but reasoning" if reply.strip() else "the reply is empty")
    fenced = _last_fenced_block(text)
    if fenced is not None:
        block, closed = fenced
        if cut and not closed:
            return Extraction(None, "cut off inside its last fenced block")
        return Extraction(block, "fenced block") if block else Extraction(None, "the last fenced block is empty")
    bare = _last_statement(text)
    if bare is None:
        return Extraction(None, "no fenced block and no statement that begins with SELECT or WITH")
    statement, terminated = bare
    if cut and not terminated:
        return Extraction(None, "cut off inside its last statement")
    return Extraction(statement, "bare statement")


def _without_reasoning(reply: str) -> str:
    text = _CLOSED_THINK.sub("\n", reply)
    # A chat template may have opened the block in the prompt: everything before a lone close is reasoning.
    for close in reversed(list(_THINK_CLOSE.finditer(text))):
        text = text[close.end() :]
        break
    unclosed = _THINK_OPEN.search(text)
    return text if unclosed is None else text[: unclosed.start()]


def _last_fenced_block(text: str) -> tuple[str, bool] | None:
    """(content, closed) of the last fence, or None without one."""
    found: tuple[str, bool] | None = None
    position = 0
    while (opening := _FENCE.search(text, position)) is not None:
        mark = opening["mark"]
        start = _content_start(text, opening.end())
        closing = re.compile(re.escape(mark[0]) + "{" + str(len(mark)) + ",}").search(text, start)
        if closing is None:
            return text[start:].strip(), False
        found = (text[start : closing.start()].strip(), True)
        position = closing.end()
    return found


def _content_start(text: str, after_mark: int) -> int:
    """Where a block's content begins: after the language tag, on this line or the next."""
    tag = _LANGUAGE.match(text, after_mark)
    if tag is None or not tag["tag"]:
        return after_mark
    rest_is_empty = tag.end() == len(text) or text[tag.end()] in "\r\n"
    is_statement = tag["tag"].upper() in ("SELECT", "WITH")
    if tag["tag"].lower() in _SQL_TAGS or (rest_is_empty and not is_statement):
        return tag.end()
    return after_mark


def _last_statement(text: str) -> tuple[str, bool] | None:
    """(statement, ended by a semicolon) of the last statement outside any other, or None."""
    found: tuple[str, bool] | None = None
    position = 0
    while True:
        starts = [match for pattern in (_LINE_START, _MID_LINE) if (match := pattern.search(text, position))]
        if not starts:
            return found
        start = min(match.start("start") for match in starts)
        end, terminated = _statement_end(text, start)
        found = (text[start:end].strip().rstrip("`").strip(), terminated)
        position = max(end, start + 1)


def _statement_end(text: str, start: int) -> tuple[int, bool]:
    """End of the statement at `start`: a semicolon, or a blank line before prose; quotes and parentheses respected."""
    depth = 0
    for token in _SCAN.finditer(text, start):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
        elif token["end"] and depth <= 0:
            return token.end(), True
        elif token["blank"] and depth <= 0 and not _CLAUSE.match(text, token.end()):
            return token.start(), False
    return len(text), False
