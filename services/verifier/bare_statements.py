"""The last SELECT of a text without fences, told from the prose around it. Pure; linear in the text's length.

Where a statement begins is guessed from keywords and their place on the line; where it ends by reading it as SQL:
quotes, comments and parentheses are followed until a semicolon, or until prose begins.
"""

import re
from dataclasses import dataclass

from services.verifier.fences import CTE

_KEYWORD = re.compile(
    rf"(?P<comment>/\*)|(?P<line>^[ \t]*(?:--|\|(?!\|))[^\n]*)|\b(?:(?P<select>SELECT\b|{CTE})"
    r"|(?P<other>EXPLAIN\s+(?:ANALYZE|VERBOSE|SELECT|WITH|\()|INSERT\s+INTO\b|MERGE\s+INTO\b|COPY\s*\("
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP\w*\s+|MATERIALIZED\s+|RECURSIVE\s+)*(?:TABLE|VIEW)\b))",
    re.IGNORECASE | re.MULTILINE,
)
"""SELECT and WITH; the statements that may hold one without being one; comment lines and rows of a Markdown table."""

_PROSE_FOLLOWS = re.compile(
    r"\s+(?:the|this|that|these|those|your|our|an|which|whichever|only\s+the|from\s+the|is|are|and|or|to|with)\b",
    re.IGNORECASE,
)
"""Behind the verb `select` in a sentence, never behind SELECT in a statement."""

_NOUN_FOLLOWS = re.compile(r"\s+(?:statements?|query|queries|clauses?|lists?|keywords?|commands?)\b", re.IGNORECASE)
"""Makes a SELECT within a line a word about SQL."""

_QUANTITY_FOLLOWS = re.compile(r"\s+(?:a|all|any|each|every|one|some|only|both)\s+[a-z]")
"""Makes a capitalised `Select` an instruction."""

_PROSE_LINE = re.compile(
    r"[ \t]*(?:(?:This|That|These|The|Here|There|It|I|We|You|Your|Note|Explanation|Output|Results?|Hope|Let|Please|"
    r"However|Alternatively|Also)(?:[ \t]*:|,|['’][a-z]+|[ \t]+[a-z]+)|#+[ \t]|\*\*|\|(?!\|))"
)
"""A line that goes on in words or in Markdown."""

_CLAUSE = re.compile(
    r"--|/\*|[(),;]|\|\||(?:SELECT|FROM|WHERE|GROUP|HAVING|ORDER|LIMIT|OFFSET|FETCH|WINDOW|UNION|INTERSECT|EXCEPT|"
    r"JOIN|LEFT|RIGHT|FULL|INNER|CROSS|NATURAL|ON|USING|AND|OR|CASE|WHEN|THEN|ELSE|END|AS|WITH|VALUES|FILTER)\b",
    re.IGNORECASE,
)
"""What may stand behind a blank line inside a statement."""

_GOES_ON = re.compile(r"\s*(?:(?:UNION|INTERSECT|EXCEPT|ORDER|LIMIT|OFFSET|FETCH)\b|[;)]|\Z)", re.IGNORECASE)
"""What may stand behind a select in parentheses."""

_MAIN = re.compile(rf"(?:SELECT\b|{CTE})", re.IGNORECASE)

_TOKEN = re.compile(
    r"(?P<text>\b[eE]'(?:[^'\\]|\\.)*+'?|'[^']*'?|\"[^\"]*\"?|--[^\n]*)"
    r"|(?P<comment>/\*)|(?P<dollar>\$(?:[A-Za-z_]\w*)?\$)|(?P<word>[^\W\d][\w$]*)"
    r"|(?P<line>\n[ \t]*(?P<blank>\n\s*)?)|(?P<open>\()|(?P<close>\))|(?P<end>;)|(?P<span>[`”’»])",
    re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_QUOTE_PREFIX = re.compile(r"\n[ \t]*>[ \t]?")

_SPAN_ENDS = {"`": "`", "“": "”", "‘": "’", "«": "»"}
_INTRODUCES = (":", "：", "->", "=>", "→")
_BULLETS = " \t>*+-.)0123456789"
_SET_WORDS = frozenset({"UNION", "INTERSECT", "EXCEPT", "ALL", "DISTINCT", "AS"})
"""Behind these a SELECT on a new line belongs to the same statement."""


@dataclass(frozen=True)
class Statement:
    """`complete`: it ended by itself, so that a reply cut later did not cut it."""

    sql: str
    complete: bool


@dataclass(frozen=True)
class _Place:
    """Where the statement of a keyword begins, parentheses included."""

    start: int
    span_end: str | None
    """The mark that ends the code span or quotation around it."""
    quoted: bool
    """On lines that begin with `>`."""


def last_statement(text: str) -> Statement | None:
    """The last one that begins with SELECT or WITH, outside any other."""
    found: Statement | None = None
    position = 0
    while (keyword := _KEYWORD.search(text, position)) is not None:
        if keyword["comment"]:
            position = _comment_end(text, keyword.start())
        elif keyword["line"]:
            position = keyword.end()
        elif (place := _place(text, keyword, position)) is None:
            position = keyword.start() + 1
        else:
            end, complete = _end(text, place, keyword)
            if keyword["select"]:
                sql = text[place.start : end]
                found = Statement((_QUOTE_PREFIX.sub("\n", sql) if place.quoted else sql).strip(), complete)
            position = max(end, keyword.end())
    return found


def _place(text: str, keyword: re.Match[str], after: int) -> _Place | None:
    """None when the word is prose. Nothing before `after` is looked at."""
    edge = keyword.start()
    while edge > after and text[edge - 1] in " \t\n(":
        edge -= 1
    parenthesis = text.find("(", edge, keyword.start())
    start = keyword.start() if parenthesis < 0 else parenthesis
    before = text[max(edge - 2, after) : edge]
    line = text.rfind("\n", after, start) + 1
    prefix = text[line:start] if line or not after else "prose"
    span_end = _SPAN_ENDS.get(before[-1:])
    at_beginning = not prefix.strip(_BULLETS + "(") or span_end is not None or before.endswith(_INTRODUCES)
    word = keyword[0].split(None, 1)[0]
    if _is_prose(text, keyword, word, at_beginning):
        return None
    return _Place(start, span_end, ">" in prefix) if at_beginning or word.isupper() else None


def _is_prose(text: str, keyword: re.Match[str], word: str, at_beginning: bool) -> bool:
    if word.upper() != "SELECT":
        return False  # the others are recognised by more than their first word
    behind = keyword.end()
    if _PROSE_FOLLOWS.match(text, behind) or (word.istitle() and _QUANTITY_FOLLOWS.match(text, behind)):
        return True
    return not at_beginning and _NOUN_FOLLOWS.match(text, behind) is not None


def _end(text: str, place: _Place, keyword: re.Match[str]) -> tuple[int, bool]:
    """Where a statement ends, and whether it did so by itself."""
    depth = 0
    main_seen = keyword["select"] is not None and keyword[0].upper() == "SELECT"
    last_word = ""
    position = place.start
    while (token := _TOKEN.search(text, position)) is not None:
        position = token.end()
        match token.lastgroup:
            case "comment":
                position = _comment_end(text, token.start())
            case "dollar":
                position = _behind(text, token[0], position)
            case "open":
                depth += 1
            case "close":
                depth -= 1
                if depth < 0:
                    return token.start(), True
                if depth == 0 and text[place.start] == "(" and not _GOES_ON.match(text, position):
                    return position, True
            case "end":
                return position, True
            case "span" if token[0] == place.span_end:
                return token.start(), True
            case "word" if depth == 0:
                last_word = token[0].upper()
                main_seen = main_seen or last_word == "SELECT"
            case "line" if depth == 0:
                if main_seen and last_word not in _SET_WORDS and _MAIN.match(text, position):
                    return token.start(), True
                blank = token["blank"] and not (_expects_more(text, token.start()) or _CLAUSE.match(text, position))
                if blank or _PROSE_LINE.match(text, position):
                    return token.start(), False
    return len(text), False


def _expects_more(text: str, end: int) -> bool:
    """Whether what stands before `end` cannot be the last of a statement."""
    return text[max(0, end - 40) : end].rstrip().endswith((",", "+", "-", "/", "=", "<", ">", "||"))


def _comment_end(text: str, start: int) -> int:
    """Behind the comment that begins at `start`; they nest. The text's end when it is never closed."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def _behind(text: str, mark: str, position: int) -> int:
    found = text.find(mark, position)
    return len(text) if found < 0 else found + len(mark)
