"""The shop's rows as text and as prompt: no database needed."""

import datetime

import postgast
import pytest

from domains.shop.dice import Dice, boundary_days
from domains.shop.generate import FOLDER, SHAPES, draw_store, generated_files
from domains.shop.standing import FIRST_DAY, LAST_DAY
from shared.bundles.notes import undescribed_columns
from shared.contracts.rollout import Regime
from shared.domain import load_bundle, messages, system_prompt, table_names

BUNDLE = load_bundle(FOLDER)


def test_the_generator_reproduces_the_committed_files_byte_for_byte() -> None:
    for path, text in generated_files().items():
        assert (FOLDER / path).read_bytes() == text.encode(), f"{path}: run `python -m domains.shop.generate`"


def test_every_generated_file_is_committed_and_no_other() -> None:
    found = {"seed.sql"} | {f"variants/{path.name}" for path in (FOLDER / "variants").iterdir()}
    assert found == set(SHAPES)
    assert len((FOLDER / "seed.sql").read_bytes()) < 150_000


def test_no_name_is_a_keyword() -> None:
    names = set(table_names(BUNDLE))
    for statement in postgast.parse(BUNDLE.schema_sql).stmts:
        names |= {element.column_def.colname for element in statement.stmt.create_stmt.table_elts} - {""}
    assert [name for name in sorted(names) if postgast.scan(name).tokens[0].keyword_kind] == []


def test_only_keys_share_a_column_name_between_tables() -> None:
    store = draw_store(SHAPES["seed.sql"])
    columns = [column for rows in store for column in rows[0]._fields]
    assert {column for column in columns if columns.count(column) > 1 and not column.endswith("_id")} == set()


def test_every_null_has_a_meaning_in_notes() -> None:
    assert undescribed_columns(BUNDLE.schema_sql, BUNDLE.notes) == {}
    without_comments = "\n".join(line.split("--")[0] for line in BUNDLE.schema_sql.splitlines())
    assert undescribed_columns(without_comments, BUNDLE.notes) == {}


def test_orders_fill_all_24_months_and_nothing_lies_after_the_last_day() -> None:
    for path, shape in SHAPES.items():
        store = draw_store(shape)
        months = {(order.ordered_on.year, order.ordered_on.month) for order in store.orders}
        assert months == {(year, month) for year in (2023, 2024) for month in range(1, 13)}, path
        assert min(order.ordered_on for order in store.orders) >= FIRST_DAY
        days = [value for rows in store for row in rows for value in row if isinstance(value, datetime.date)]
        assert max(day.isoformat()[:10] for day in days) == "2024-12-31", path


def test_full_prompt_has_the_schema_with_comments_and_the_notes() -> None:
    prompt = system_prompt(BUNDLE, Regime(prompt="full"))
    for table in table_names(BUNDLE):
        assert f"CREATE TABLE {table} (" in prompt
    assert "-- NULL = not shipped yet" in prompt
    assert BUNDLE.notes.strip() in prompt
    assert "INSERT" not in prompt


def test_the_question_alone_is_sent_without_a_system_turn() -> None:
    assert [message.role for message in messages(BUNDLE, Regime(prompt="question"), "How many?")] == ["user"]
    prefixed = messages(BUNDLE, Regime(prompt="question", system_prefix="Be brief."), "How many?")
    assert [(message.role, message.content) for message in prefixed] == [("system", "Be brief."), ("user", "How many?")]


def test_dice_repeat_themselves_and_keep_to_the_range() -> None:
    first, second = Dice(7, 0.5), Dice(7, 0.5)
    draws = [first.day(FIRST_DAY, LAST_DAY) for _ in range(300)]
    assert draws == [second.day(FIRST_DAY, LAST_DAY) for _ in range(300)]
    assert min(draws) >= FIRST_DAY
    assert max(draws) <= LAST_DAY
    assert {first.between(1, 3) for _ in range(100)} == {1, 2, 3}
    assert sorted(first.shuffled("hello")) == sorted("hello")
    assert first.pick("ab", [0, 1]) == "b"


@pytest.mark.parametrize("day", ["2023-01-01", "2023-03-31", "2024-02-29", "2024-10-01", "2024-09-30"])
def test_boundary_days_are_quarter_ends_and_the_leap_day(day: str) -> None:
    assert day in {found.isoformat() for found in boundary_days(FIRST_DAY, LAST_DAY)}
