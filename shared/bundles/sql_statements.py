"""A SQL file as statements: each with its parse tree, its exact text, the comments before it, its line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import postgast

from shared.domain import BundleError

nodes: Final = postgast.pg_query_pb2  # by attribute: mypy cannot read the stub that an import would follow

PG_DUMP_COMMENT: Final = re.compile(
    r"--\s*(PostgreSQL database (cluster )?dump.*|Dumped (from|by) .*|(Data for )?Name: .*; Type: .*|TOC entry .*"
    r"|(User Config|Databases|Roles|Database) .*)?"
)


@dataclass(frozen=True)
class Statement:
    """One statement of the file."""

    node: Any
    """Its parse tree below `Node`, e.g. a `CreateStmt`."""
    kind: str
    """The tree's kind as libpg_query spells it, e.g. `create_stmt`."""
    comments: str
    """Comment lines before it, each with its line end."""
    text: str
    """The statement with its semicolon and a comment that follows on the same line."""
    line: int
    """Line of its first word, from 1."""

    @property
    def opening(self) -> str:
        """Its first words, for a message."""
        return " ".join(self.text.split()[:4])


def statements(text: str) -> Iterator[Statement]:
    """The file's statements, with what surrounds them. Raises BundleError naming the line."""
    try:
        parsed = postgast.parse(text).stmts
        tokens = postgast.scan(text).tokens
    except postgast.PgQueryError as error:
        line = text.count("\n", 0, max(0, error.cursorpos - 1)) + 1
        raise BundleError(f"line {line}: {error}") from error
    data = text.encode()
    ends = [token.end for token in tokens if token.token == nodes.ASCII_59]
    comments = {nodes.SQL_COMMENT, nodes.C_COMMENT}
    words = [token.start for token in tokens if token.token not in comments]
    position = next_end = next_word = line = counted = 0
    for raw in parsed:
        stop = raw.stmt_location + raw.stmt_len if raw.stmt_len else len(data)
        while next_end < len(ends) and ends[next_end] <= stop:
            next_end += 1
        end = ends[next_end] if next_end < len(ends) else len(data)
        while words[next_word] < max(position, raw.stmt_location):
            next_word += 1
        start = words[next_word]
        trailing = re.match(rb"[ \t]*(--[^\n]*)?(?=\n|$)", data[end : data.find(b"\n", end) + 1 or None])
        after = end + (trailing.end() if trailing else 0)
        kind = raw.stmt.WhichOneof("node")
        line, counted = line + data.count(b"\n", counted, start), start
        yield Statement(
            node=getattr(raw.stmt, kind),
            kind=kind,
            comments=_kept_comments(data[position:start].decode()),
            text=data[start:after].decode().rstrip() + ("" if data[start:end].rstrip().endswith(b";") else ";"),
            line=line + 1,
        )
        position = after


def _kept_comments(text: str) -> str:
    """The lines before a statement without blank ones and without those pg_dump writes."""
    lines = [line.rstrip() for line in text.split("\n")]
    return "".join(f"{line}\n" for line in lines if line.strip(" ;") and not PG_DUMP_COMMENT.fullmatch(line))


def without_public(text: str) -> str:
    """`public.author` → `author`: a bundle's tables are in the search path, and the prompt is shorter."""
    try:
        tokens = postgast.scan(text).tokens
    except postgast.PgQueryError:
        return text  # the parser reports it with its line
    data = text.encode()
    kept, position = [], 0
    for token, following in pairwise(tokens):
        spelled = data[token.start : token.end]
        if spelled in (b"public", b'"public"') and following.token == nodes.ASCII_46:
            kept.append(data[position : token.start])
            position = following.end
    return b"".join([*kept, data[position:]]).decode()
