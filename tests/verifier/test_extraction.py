"""Replies to statements, as design section 4 says."""

import pytest

from services.verifier.extraction import extract
from shared.contracts.verifier import FinishReason

FOUND = {
    "bare": ("SELECT a FROM t", "SELECT a FROM t"),
    "bare, lower case": ("select a from t", "select a from t"),
    "bare with semicolon": ("SELECT a FROM t;", "SELECT a FROM t;"),
    "CTE": ("WITH x AS (SELECT 1) SELECT * FROM x", "WITH x AS (SELECT 1) SELECT * FROM x"),
    "recursive CTE": (
        "WITH RECURSIVE x(n) AS (SELECT 1) SELECT n FROM x",
        "WITH RECURSIVE x(n) AS (SELECT 1) SELECT n FROM x",
    ),
    "parentheses": ("(SELECT a FROM t) UNION (SELECT b FROM u)", "(SELECT a FROM t) UNION (SELECT b FROM u)"),
    "fence": ("```sql\nSELECT 1\n```", "SELECT 1"),
    "fence without a language": ("```\nSELECT 1\n```", "SELECT 1"),
    "fence in one line": ("```sql SELECT 1```", "SELECT 1"),
    "fence in one line without a language": ("```SELECT 1```", "SELECT 1"),
    "fence of tildes": ("~~~sql\nSELECT 1\n~~~", "SELECT 1"),
    "fence of four": ("````sql\nSELECT '```'\n````", "SELECT '```'"),
    "keyword alone on the fence's line": ("```SELECT\n a FROM t\n```", "SELECT\n a FROM t"),
    "last fence wins": ("```sql\nSELECT 1\n```\nor better\n```sql\nSELECT 2\n```", "SELECT 2"),
    "fence beats later prose": ("```sql\nSELECT 1\n```\nI SELECT the rows; done", "SELECT 1"),
    "unclosed fence of a finished reply": ("Here:\n```sql\nSELECT 1", "SELECT 1"),
    "prose in front": ("The answer is: SELECT a FROM t;", "SELECT a FROM t;"),
    "prose on the line before": ("Sure!\nselect a from t", "select a from t"),
    "prose after a semicolon": ("SELECT a FROM t; That's it, with care.", "SELECT a FROM t;"),
    "prose after a blank line": ("SELECT a FROM t\n\nThis returns the rows.", "SELECT a FROM t"),
    "blank line inside": ("SELECT a\n\nFROM t\n\nWHERE b", "SELECT a\n\nFROM t\n\nWHERE b"),
    "blank line inside parentheses": ("SELECT (a\n\n+ b) FROM t", "SELECT (a\n\n+ b) FROM t"),
    "semicolon in a string": ("SELECT ';' FROM t; thanks", "SELECT ';' FROM t;"),
    "semicolon in a comment": ("SELECT 1 -- no; really\n FROM t; thanks", "SELECT 1 -- no; really\n FROM t;"),
    "dollar quotes": ("SELECT $q$a;b$q$ FROM t; thanks", "SELECT $q$a;b$q$ FROM t;"),
    "two bare statements": ("SELECT 1;\nSELECT 2;", "SELECT 2;"),
    "subquery is not a statement": ("SELECT a FROM (SELECT b FROM t) x", "SELECT a FROM (SELECT b FROM t) x"),
    "union stays whole": ("SELECT 1\nUNION\nSELECT 2", "SELECT 1\nUNION\nSELECT 2"),
    "with as a prose word": ("SELECT a FROM t;\nWith this query you get a.", "SELECT a FROM t;"),
    "comment in front": ("-- all of them\nSELECT a FROM t", "SELECT a FROM t"),
    "closed thinking": ("<think>SELECT 1;</think>SELECT 2", "SELECT 2"),
    "thinking opened by the template": ("maybe SELECT 1;\n</think>\nSELECT 2", "SELECT 2"),
    "fence inside thinking": ("<think>```sql\nSELECT 1\n```</think>\n```sql\nSELECT 2\n```", "SELECT 2"),
    "quote block": ("> SELECT a FROM t", "SELECT a FROM t"),
    "other language": ("La requête est :\n```sql\nSELECT nom FROM clients\n```\nVoilà.", "SELECT nom FROM clients"),
}

NOT_FOUND = [
    "",
    "   \n",
    "I do not know.",
    "I would select the customers with the highest totals.",
    "DELETE FROM t",
    "<think>SELECT 1;",
    "<think>first</think> hm <think>SELECT 1;",
    "<think>```sql\nSELECT 1\n```",
    "```sql\n\n```",
    "SELECT 1;\n</think>",
    "| a | b |\n|---|---|\n| 1 | 2 |",
]

CUT = ["SELECT a FROM", "```sql\nSELECT a FROM t", "```sql\nSELECT 1\n```\nbetter:\n```sql\nSELECT 2"]


@pytest.mark.parametrize("reply, sql", FOUND.values(), ids=FOUND.keys())
def test_statement_is_found(reply: str, sql: str) -> None:
    assert extract(reply, FinishReason.STOP).sql == sql


@pytest.mark.parametrize("reply", NOT_FOUND)
def test_no_statement_is_found(reply: str) -> None:
    found = extract(reply, FinishReason.STOP)
    assert found.sql is None
    assert found.reason


@pytest.mark.parametrize("reply", CUT)
def test_a_statement_that_the_budget_cut_is_none(reply: str) -> None:
    assert extract(reply, FinishReason.STOP).sql is not None
    assert extract(reply, FinishReason.LENGTH).sql is None
    assert extract(reply, FinishReason.ABORT).sql is None


def test_a_finished_statement_counts_although_the_prose_after_it_was_cut() -> None:
    assert extract("```sql\nSELECT 1\n```\nThis query ret", FinishReason.LENGTH).sql == "SELECT 1"
    assert extract("SELECT 1; This query ret", FinishReason.LENGTH).sql == "SELECT 1;"
