"""What a bundle lacks is said from its text alone."""

import json
from pathlib import Path

import pytest

from shared.bundles.check import clock_use, missing_notes, personal_columns, prompt_length, tables_without_key
from shared.domain import Bundle, DomainSettings

SCHEMA = """
CREATE TABLE buyer (id int PRIMARY KEY, email text, note text);
CREATE TABLE visit (buyer int REFERENCES buyer, at timestamp NOT NULL);
CREATE TABLE code (a text UNIQUE);
"""
SEED = "INSERT INTO buyer VALUES (1, 'a@b.de', NULL), (2, 'c@d.de', 'x'); INSERT INTO visit VALUES (1, now());"


def bundle(notes: str = "", **settings: list[str]) -> Bundle:
    """A bundle of the schema above."""
    return Bundle(
        DomainSettings(name="t", **settings), SCHEMA, SEED, notes, {"late": "INSERT INTO code VALUES ('now()')"}
    )


def test_columns_that_look_personal_are_found_unless_masked_or_reviewed() -> None:
    assert [found.column for found in personal_columns(bundle())] == ["buyer.email"]
    assert personal_columns(bundle(masked_columns=["buyer.email"])) == []
    assert personal_columns(bundle(reviewed_columns=["buyer.email"])) == []
    assert bundle().digest == bundle(reviewed_columns=["buyer.email"]).digest


def test_missing_notes_are_those_on_nulls_that_occur() -> None:
    assert missing_notes(bundle()) == [
        "notes.md is missing or empty: formulas and what NULL means belong there",
        "what NULL means in buyer: note",
        "what NULL means in code: a",
    ]
    noted = "- Visits a buyer: visits / buyers\n- buyer.note: nothing said. code.a: none."
    assert missing_notes(bundle(noted)) == []
    assert "no formula" in missing_notes(bundle("<!-- - Sum: a + b -->\n- buyer.note: nothing"))[0]


def test_tables_without_key_and_rows_of_the_clock_are_named() -> None:
    assert tables_without_key(SCHEMA) == ["visit"]
    assert clock_use(bundle()) == ["seed.sql: now"]


def test_a_prompt_is_counted_by_the_models_own_tokenizer(tmp_path: Path) -> None:
    assert prompt_length("word " * 70, None).by == "estimate"
    pytest.importorskip("tokenizers")
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}}
    model = {"type": "WordLevel", "vocab": {"word": 0, "?": 1}, "unk_token": "?"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer | {"model": model}))
    found = prompt_length("word " * 70, tmp_path)
    assert (found.tokens, found.by) == (70, str(tmp_path))
    with pytest.raises(FileNotFoundError):
        prompt_length("word", tmp_path / "nosuch")
