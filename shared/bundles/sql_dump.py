"""What `pg_dump` and psql write that is not SQL: COPY data blocks and backslash commands. Turned into plain SQL here.

Every line keeps its number, so an error in the result names the line of the original file.
"""

import re
from typing import Final

import postgast

from shared.domain import BundleError
from shared.sql import identifier, literal

_COPY: Final = re.compile(r"COPY\b[^;]*?\bFROM\s+STDIN\b[^;]*;[ \t]*$", re.IGNORECASE)
_PSQL: Final = re.compile(
    r"\\(restrict|unrestrict|connect|c|encoding|set|unset|echo|qecho|pset|timing|conninfo)(?=\s|$)"
)
_CONNECT: Final = re.compile(r"\\(?:connect|c)\s+(?:-reuse-previous=\w+\s+)?\"?([\w-]+)")
_READS: Final = re.compile(r"\\(i|ir|include|include_relative|copy|if|elif|else|endif|gexec|gset|!)(?=\s|$)")
"""Commands of psql that bring in other text or run something: what they would do cannot be known here."""
_ESCAPE: Final = re.compile(r"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_NAMED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LONGEST_HEAD: Final = 50
"""Lines a COPY statement may span before it is taken for something else."""


def plain_sql(text: str) -> str:
    """The file with COPY blocks as INSERTs and psql's own commands blanked. Raises BundleError naming the line."""
    if text.count("\r\n") == text.count("\n"):  # a Windows file; a few may stand in strings of any file
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    done: list[str] = []
    databases: set[str] = set()
    while len(done) < len(lines):
        start = len(done)
        head = _copy_head(lines, start)
        if head:
            done += _insert_lines(lines, start, head)
        else:
            done.append(_without_command(lines[start], start + 1, databases))
    return "\n".join(done)


def _without_command(line: str, number: int, databases: set[str]) -> str:
    """The line, blank where it is a command of psql that means nothing here. Raises BundleError for one that does."""
    if (command := _READS.match(line)) is not None:
        raise BundleError(f"line {number}: psql's {command[0]} cannot be followed: put what it brings into the file")
    if (named := _CONNECT.match(line)) is not None:
        databases |= {named[1]} - {"postgres", "template1"}
        if len(databases) > 1:
            raise BundleError(
                f"line {number}: {named[1]} is a second database: a bundle is one; dump it alone with pg_dump"
            )
    return "" if _PSQL.match(line) else line


def _copy_head(lines: list[str], start: int) -> int:
    """How many lines from `start` make a `COPY … FROM stdin;` statement; 0 for none."""
    if not lines[start].upper().startswith("COPY"):
        return 0
    for count in range(1, _LONGEST_HEAD + 1):
        head = "\n".join(lines[start : start + count])
        if _COPY.match(head):
            return count
        if ";" in head:
            return 0
    return 0


def _insert_lines(lines: list[str], start: int, head: int) -> list[str]:
    """As many lines as the block has, from COPY to `\\.`."""
    try:
        copy = postgast.parse("\n".join(lines[start : start + head])).stmts[0].stmt.copy_stmt
    except postgast.PgQueryError as error:
        raise BundleError(f"line {start + 1}: {error}") from error
    if copy.options:
        raise BundleError(f"line {start + 1}: COPY with options cannot be read; dump with plain pg_dump or --inserts")
    try:
        end = lines.index("\\.", start + head)
    except ValueError:
        raise BundleError(f"line {start + 1}: this COPY block has no closing line with \\. alone") from None
    rows = [_row(line) for line in lines[start + head : end]]
    if not rows:
        return [""] * (end + 1 - start)
    columns = [identifier(node.string.sval) for node in copy.attlist]
    width = len(columns) or len(rows[0])
    for number, row in enumerate(rows, start + head + 1):
        if len(row) != width:
            raise BundleError(f"line {number}: {len(row)} values where the COPY block has {width} columns")
    schema = f"{identifier(copy.relation.schemaname)}." if copy.relation.schemaname else ""
    target = f"INSERT INTO {schema}{identifier(copy.relation.relname)}"
    listed = f" ({', '.join(columns)})" if columns else ""
    # COPY fills GENERATED ALWAYS identity columns; an INSERT may do so only when it says this
    opening = [f"{target}{listed} OVERRIDING SYSTEM VALUE VALUES", *[""] * (head - 1)]
    body = ["(" + ", ".join(map(literal, row)) + ")" for row in rows]
    return [*opening, *[f"{line}," for line in body[:-1]], body[-1], ";"]


def _row(line: str) -> list[str | None]:
    """One line of COPY's text format as values."""
    return [None if field == "\\N" else _ESCAPE.sub(_unescape, field) for field in line.split("\t")]


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _NAMED.get(code, code)
