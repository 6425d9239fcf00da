"""Replies of models, as they come: clean, within prose, malformed, cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.author.teachers.base import Phrasing
from services.author.teachers.replies import ReadItem, read_reply
from shared.contracts.tasks import Archetype, Difficulty

ITEM = {
    "questions": [{"style": "terse", "question": "How many orders?"}],
    "sql": "SELECT count(*) FROM orders;",
    "columns": ["number of orders"],
    "order_matters": False,
    "archetype": "grouping",
    "difficulty": "easy",
}
READ = ReadItem(
    (Phrasing("terse", "How many orders?"),),
    "SELECT count(*) FROM orders",
    ("number of orders",),
    False,
    Archetype.GROUPING,
    Difficulty.EASY,
)
TEXT = json.dumps({"proposals": [ITEM, ITEM]})


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"Here they are, {{as asked}}:\n```json\n{TEXT}\n```\nTell me if {{more}} are needed.",
        json.dumps([ITEM, ITEM]),
        f"{json.dumps(ITEM)}\n{json.dumps(ITEM)}",
        f"<think>maybe {TEXT}</think>{TEXT}",
        json.dumps({"proposals": [ITEM, ITEM]}, indent=2),
    ],
    ids=["clean", "prose and fence", "bare list", "one a line", "thought", "indented"],
)
def test_items_are_found_wherever_they_stand(text: str) -> None:
    assert read_reply(text) == [READ, READ]


def test_a_malformed_item_is_lost_alone() -> None:
    good, bad = json.dumps(ITEM), json.dumps(ITEM).replace('"sql": "', '"sql": ')
    assert read_reply(f'{{"proposals": [{good}, {bad}, {good}]}}') == [READ, None, READ]


@pytest.mark.parametrize(
    "fault",
    [{"sql": ""}, {"sql": None}, {"questions": []}, {"questions": [{"question": ""}]}, {"sql": "SELECT '\ud800'"}],
    ids=["no sql", "null sql", "no question", "empty question", "surrogate"],
)
def test_an_item_without_what_it_needs_is_unreadable(fault: dict[str, object]) -> None:
    assert read_reply(json.dumps({"proposals": [ITEM, {**ITEM, **fault}]})) == [READ, None]


def test_forms_that_mean_the_same_are_read_alike() -> None:
    single = {**ITEM, "question": "How many orders?", "style": "terse"}
    del single["questions"]
    named = {**ITEM, "archetype": "aggregation", "difficulty": "trivial"}
    broken_line = TEXT.replace("SELECT count(*) FROM", "SELECT count(*)\nFROM")
    assert read_reply(json.dumps({"proposals": [single]})) == [READ]
    [other] = read_reply(json.dumps({"proposals": [named]}))
    assert other is not None
    assert (other.archetype, other.difficulty) == (None, None)
    [first, _] = read_reply(broken_line)
    assert first is not None
    assert first.sql == "SELECT count(*)\nFROM orders"


@pytest.mark.parametrize("text", ["", "I cannot help with that.", "{}", '{"proposals": []}', "[1, 2]", '{"a": {"b": 1'])
def test_a_reply_without_items_holds_none(text: str) -> None:
    assert read_reply(text) == []


@given(st.integers(0, len(TEXT)))
def test_a_cut_reply_keeps_the_items_before_the_cut(end: int) -> None:
    read = read_reply(TEXT[:end])
    whole = [item for item in read if item is not None]
    assert len(whole) == sum(end >= place for place in (TEXT.index("}, {") + 1, TEXT.rindex("}]}") + 1))
    assert all(item == READ for item in whole)
    assert read[: len(whole)] == whole
    assert len(read) - len(whole) <= 1


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    read_reply(text)
    read_reply(f'{{"proposals": [{text}')
