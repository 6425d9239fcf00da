"""From the raw first assistant turn to one SQL statement. Pure; the only place where replies become SQL.

Reasoning is dropped first, closed or not, so that a draft inside it earns nothing. Then the last fenced block that can
be SQL wins, else the last statement that begins with SELECT or WITH. What the token budget cut off is no statement.
Every step reads the reply once: its length is the model's choice.
"""

import re
from dataclasses import dataclass

from services.verifier.bare_statements import last_statement
from services.verifier.fences import Block, fenced_blocks, without
from shared.contracts.verifier import FinishReason


@dataclass(frozen=True)
class Extraction:
    """`sql` is None when the reply holds no statement; `reason` says why, or where the statement was found."""

    sql: str | None
    reason: str


_REASONING_TOKEN = re.compile(r"'|\n|<(?P<close>/?)[Tt][Hh][Ii][Nn][Kk]>")
"""No named groups around the alternatives: each begins with a plain character, which the scan looks for first."""


def extract(reply: str, finish_reason: FinishReason | None = None) -> Extraction:
    """The statement a reply answers with. `finish_reason` None counts as `stop`."""
    text = _without_reasoning(reply.replace("\r\n", "\n"))
    cut = finish_reason in (FinishReason.LENGTH, FinishReason.ABORT)
    if not text.strip():
        return Extraction(None, "nothing but reasoning" if reply.strip() else "the reply is empty")
    blocks = fenced_blocks(text)
    if cut and blocks and _may_be_cut_sql(blocks[-1]):
        return Extraction(None, "cut off inside its last fenced block")
    block = next((block for block in reversed(blocks) if block.is_sql), None)
    if block is not None:
        return Extraction(block.content, "fenced block")
    bare = last_statement(without(blocks, text))
    if bare is None:
        empty = any(not block.content for block in blocks)
        none = "the fenced block is empty" if empty else "no fenced block of SQL"
        return Extraction(None, f"{none}, and no statement that begins with SELECT or WITH")
    if cut and not bare.complete:
        return Extraction(None, "cut off inside its last statement")
    return Extraction(bare.sql, "bare statement")


def _may_be_cut_sql(block: Block) -> bool:
    """Whether a block that the budget left open is, or was going to be, the statement."""
    return not block.closed and (block.is_sql or "\n" not in block.content)


def _without_reasoning(text: str) -> str:
    kept: list[str] = []
    position = 0
    inside = False
    for tag in _reasoning_tags(text):
        if tag["close"]:
            if not inside:  # a chat template may have opened the block in the prompt: all before it is reasoning
                kept.clear()
            inside = False
            position = tag.end()
        elif not inside:
            kept.append(text[position : tag.start()])
            inside = True
    if not inside:
        kept.append(text[position:])
    return "\n".join(kept)


def _reasoning_tags(text: str) -> list[re.Match[str]]:
    """The think tags, but for those in a quoted literal on one line: SQL may compare with one."""
    tags: list[re.Match[str]] = []
    quoted: list[re.Match[str]] | None = None
    for token in _REASONING_TOKEN.finditer(text):
        mark = token[0]
        if mark[0] == "<":
            (tags if quoted is None else quoted).append(token)
        elif mark == "\n" or quoted is None:
            tags += quoted or ()
            # An apostrophe stands after a letter, an opening quote does not.
            opens = mark == "'" and not text[token.start() - 1 : token.start()].isalnum()
            quoted = [] if opens else None
        else:
            quoted = None
    return tags + (quoted or [])
