"""Replies to statements, as design section 4 says: the table in replies.txt, and replies made to take long."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.verifier.extraction import extract
from services.verifier.profiles.recipe import extract as recipe_extract
from shared.contracts.verifier import FinishReason

REPLIES = Path(__file__).parent / "replies.txt"


@dataclass(frozen=True)
class Case:
    """`sql` or, when there is none, a word of the reason."""

    title: str
    reply: str
    finish_reason: FinishReason
    sql: str | None
    reason: str


def read_case(block: str) -> Case:
    title, rest = block.split("\n", 1)
    reply, answer = re.split(r"^>>> ", rest, flags=re.MULTILINE)
    sql = answer.split("\n# ---", 1)[0].removeprefix("sql\n").strip() if answer.startswith("sql\n") else None
    reason = "" if sql is not None else answer.removeprefix("none: ").split("\n", 1)[0]
    cut = title.endswith(" [length]")
    return Case(title, reply.removesuffix("\n"), FinishReason.LENGTH if cut else FinishReason.STOP, sql, reason)


CASES = [read_case(block) for block in re.split(r"^=== ", REPLIES.read_text(), flags=re.MULTILINE)[1:]]


def test_the_table_is_as_long_as_promised() -> None:
    assert len(CASES) >= 100
    assert len({case.title for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_reply(case: Case) -> None:
    found = extract(case.reply, case.finish_reason)
    assert found.sql == case.sql
    assert case.reason in found.reason
    windows = extract(case.reply.replace("\n", "\r\n"), case.finish_reason)
    assert windows == found


@pytest.mark.parametrize("reply", ["", "   \n", "\n\n"])
def test_an_empty_reply_holds_no_statement(reply: str) -> None:
    assert extract(reply) == extract(reply, FinishReason.ABORT)
    assert (extract(reply).sql, extract(reply).reason) == (None, "the reply is empty")


@pytest.mark.parametrize("case", [case for case in CASES if case.finish_reason is FinishReason.LENGTH])
def test_an_aborted_reply_counts_as_cut(case: Case) -> None:
    assert extract(case.reply, FinishReason.ABORT) == extract(case.reply, FinishReason.LENGTH)


@pytest.mark.parametrize("case", [case for case in CASES if case.finish_reason is FinishReason.STOP])
def test_a_draft_in_reasoning_that_never_ends_earns_nothing(case: Case) -> None:
    assert extract("<think>" + re.sub("think>", "", case.reply, flags=re.IGNORECASE)).sql is None


HOSTILE = [
    "(", "`", "```", "```\n", "```sql\n", "~~~\n", "/*", "*/", "/* ", "--", "'", '"', "$", "$$", "$a$", "$a", "\n",
    " ", "\n ", " \n", "\\", "E'\\", "WITH a AS", "WITH a AS (", "WITH ", 'WITH "', "WITH a (", "SELECT", "SELECT ",
    "select;", "SELECT 1;\n", "SELECT 1\n", "select 1\n\n", "SELECT the ", "(SELECT ", "SELECT (", "<think>",
    "</think>", "'<think>", "<think>'", "'<think>'", "<think></think>", "> ", "- ", "1. ", ": ", "|", "|\n",
    "EXPLAIN ", "EXPLAIN\n", "CREATE TEMP ", "CREATE TEMP TEMP ", "INSERT INTO ", "COPY", "`SELECT ", "“SELECT ",
    "a.", "The a ", "\nThe", "````", "`SELECT`", "> ```\n", "-- SELECT\n", "SELECT '", "SELECT $a$",
    "UNION\nSELECT ", "x", "é", "\u3000", "\r\n", "\r", "<", "<think", "SELECT(",
]  # fmt: skip
"""Repeated; a step that is not linear needs minutes for a megabyte of one of them."""


def seconds(reply: str) -> float:
    started = time.process_time()
    extract(reply, FinishReason.STOP)
    recipe_extract(reply, FinishReason.STOP)
    return time.process_time() - started


@pytest.mark.parametrize("piece", ["(", "`", "/*", "WITH a AS"])
def test_a_hundred_thousand_repetitions_are_read_in_time(piece: str) -> None:
    assert seconds(piece * 100_000) < 5


def test_no_repetition_takes_more_than_linear_time() -> None:
    for piece in HOSTILE:
        for beginning in ("", "```sql\n", "SELECT "):
            assert seconds(beginning + piece * (20_000 // len(piece))) < 1, (piece, beginning)


pieces = st.sampled_from(
    [*HOSTILE, "SELECT a FROM t", "sql\n", "FROM t", ";", ")", "AS (", " it's ", "’", "”", "```\n"]
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(pieces, max_size=8).map("".join), st.sampled_from(FinishReason))
def test_any_mixture_gives_a_part_of_the_reply_or_nothing(reply: str, finish_reason: FinishReason) -> None:
    found = extract(reply, finish_reason)
    if found.sql is not None:
        assert found.sql == found.sql.strip() != ""
        plain = reply.replace("\r\n", "\n")
        assert all(line.strip() in plain for line in found.sql.split("\n"))
