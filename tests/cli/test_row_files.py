"""Rows as files, and as rows of whileai: everything in them, no gold in them, back again."""

import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from whileai.simulations.schema import validate
from whileai.simulations.score.passat import pass_at

from cli.row_files import RowFormat, write_rows
from shared.contracts.rollout import Message, Row, SamplingRequest
from shared.contracts.verifier import FinishReason, Status
from shared.ids import task_id
from shared.whileai import from_whileai, to_whileai

REQUEST = SamplingRequest(sampling_id="one", domain="shop")
STATUSES = [Status.MATCH, Status.MISMATCH, Status.SQL_ERROR, Status.UNSCORABLE]
REWARDS = {Status.MATCH: 1.0, Status.MISMATCH: 0.1, Status.SQL_ERROR: 0.0, Status.UNSCORABLE: None}
ODD = "SELECT '\u2028\U0001f600'"


def row(number: int, elsewhere: bool = False) -> Row:
    status = STATUSES[number % 4]
    question = f"Question {number // 4}"
    return Row(
        row_id=number,
        sampling_id="one",
        task_id=task_id(question),
        sample_index=number % 4,
        messages=[Message(role="system", content="Schema"), Message(role="user", content=question)],
        prompt_hash="a" * 64,
        reply=ODD,
        prompt_token_ids=[] if elsewhere else [1, 2],
        token_ids=[] if elsewhere else [3, 4, 5],
        logprobs=[] if elsewhere else [-0.5, -0.25, -1.0],
        finish_reason=FinishReason.LENGTH if number % 4 == 1 else FinishReason.STOP,
        sample_ms=1.0,
        verify_ms=2.0,
        status=status,
        reward=REWARDS[status],
        sql=None if number % 2 else ODD,
        reason="why",
        served_model="small",
        adapter_digest="base",
        landed_at=datetime(2026, 1, 1, tzinfo=UTC),
        sqlstate="42601" if status is Status.SQL_ERROR else None,
        reported_tokens=7 if elsewhere else None,
    )


async def stream(rows: list[Row]) -> AsyncIterator[Row]:
    for one in rows:
        yield one


ROWS = [row(number) for number in range(12)] + [row(number, elsewhere=True) for number in range(12, 2012)]


@pytest.mark.parametrize("rows", [ROWS, []], ids=["rows", "none"])
@pytest.mark.parametrize("form", [RowFormat.JSONL, RowFormat.PARQUET])
async def test_a_file_holds_every_field_of_every_row(tmp_path: Path, form: RowFormat, rows: list[Row]) -> None:
    path = tmp_path / "rows"
    assert await write_rows(path, form, stream(rows), REQUEST) == len(rows)
    if form is RowFormat.PARQUET:
        import pyarrow.parquet

        found = [Row.model_validate(one) for one in pyarrow.parquet.read_table(path).to_pylist()]
    else:
        found = [Row.model_validate_json(line) for line in path.read_bytes().split(b"\n") if line]
    assert found == rows
    assert os.listdir(tmp_path) == ["rows"]


async def test_whileai_rows_are_valid_and_its_figures_are_ours(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    await write_rows(path, RowFormat.WHILEAI, stream(ROWS[:12]), REQUEST)
    theirs = [json.loads(line) for line in path.read_text().split("\n") if line]
    assert [problem for one in theirs for problem in validate(one)] == []
    assert [one["reward"] for one in theirs[:4]] == [1, 0, 0, None]
    figures = pass_at(theirs, k=3)
    assert figures.pass_at_1 == pytest.approx(1 / 3)  # of three scored replies a task
    assert (figures.n_groups, figures.k) == (3, 3)
    assert theirs[0]["logprob"] == -1.75


def test_a_whileai_row_gives_back_the_reply() -> None:
    for one in ROWS[:4]:
        found = from_whileai(to_whileai(one, REQUEST))
        assert (found.task_id, found.reply, found.finish_reason) == (one.task_id, one.reply, one.finish_reason)
    with pytest.raises(ValueError, match="no `prompt`"):
        from_whileai({"final_text": "SELECT 1"})
    with pytest.raises(ValueError, match="no `final_text`"):
        from_whileai({"prompt": "How many?"})


async def test_a_stream_that_breaks_leaves_no_file(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[Row]:
        yield ROWS[0]
        raise ConnectionError("cut")

    for form in RowFormat:
        with pytest.raises(Exception, match="cut"):
            await write_rows(tmp_path / "rows", form, broken(), REQUEST)
    assert os.listdir(tmp_path) == []
