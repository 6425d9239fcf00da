"""Runs, their course and plans as text."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.commands.training import read_guards
from cli.context import UsageError
from cli.run_view import attempt_line, curve_lines, drawings, plan_lines, run_json
from cli.sparkline import BLOCKS, WIDTH, sparkline
from shared.contracts.run_config import GuardAction, GuardName, RunConfig
from shared.contracts.trainer import AttemptRecord, CodeVersion, CurvePoint, Run, RunState
from tests.trainer.test_plan import planned
from tests.trainer.test_records import step


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), max_size=300))
def test_a_series_of_any_length_fits_the_line(values: list[float]) -> None:
    line = sparkline(values)
    assert len(line) <= WIDTH and set(line) <= set(BLOCKS) and bool(line) == bool(values)


def test_a_rising_series_rises_and_a_fixed_scale_is_kept() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == BLOCKS
    assert sparkline([0.5, 0.5], 0.0, 1.0) == BLOCKS[4] * 2
    assert sparkline([2.0, -1.0], 0.0, 1.0) == BLOCKS[7] + BLOCKS[0]
    assert sparkline([3.0]) == BLOCKS[0]


def test_a_runs_course_is_drawn_with_first_and_last_value() -> None:
    lines = drawings([step(number, 1, reward=number / 10) for number in range(1, 11)])
    assert lines[0] == "reward         ▂▂▃▄▅▅▆▇▇█  0.1 → 1"
    assert {line.split("  ")[0] for line in lines} >= {"reward", "zero-variance", "tokens", "seconds"}
    assert drawings([]) == []


def test_a_checkpoints_score_says_when_it_is_not_there() -> None:
    done = CurvePoint(step=5, sampling_id="a", pass_at_1=0.5, low=0.4, high=0.6)
    waiting, failed = CurvePoint(step=9, sampling_id="b"), CurvePoint(step=9, sampling_id="c", error="not served")
    assert [line.split("holdout")[1].strip() for line in curve_lines([done, waiting, failed])] == [
        *("pass@1 0.500 [0.400, 0.600]", "being measured", "not measured: not served")
    ]


def test_a_plan_says_memory_time_and_price() -> None:
    from services.trainer.planning.planner import presets

    text = "\n".join(plan_lines(planned(presets()["recipe-r5"])))
    assert "512 samples" in text and "fits" in text and "dollars" in text and "passes over 326 prompts" in text


def test_what_an_attempt_ran_is_shown_in_words_and_as_json() -> None:
    at = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
    code = CodeVersion(version="0.1.0", commit="7016066" + "0" * 33, dirty=True, image="registry/trainer:0.1.0")
    attempt = AttemptRecord(attempt=2, at=at, code=code, versions={"trl": "1.16.0"})
    line = "2026-11-30 08:00:00  attempt 2: sqlclimb 0.1.0 at 701606600000 with changes, image registry/trainer:0.1.0"
    assert attempt_line(attempt) == line
    assert attempt_line(attempt.model_copy(update={"code": CodeVersion(version="0.1.0")})).endswith("sqlclimb 0.1.0")
    run = Run(
        run_id="night",
        config=RunConfig(domain="shop", model="m", band_id="b"),
        state=RunState.RUNNING,
        attempt=2,
        steps_done=1,
        created_at=at,
        attempts=[attempt],
    )
    shown = json.loads(run_json(run, [step(1, 2)], []))
    assert shown["run"]["attempts"][0]["code"]["commit"] == code.commit
    assert (shown["run"]["attempts"][0]["code"]["image"], shown["steps"][0]["step"]) == (code.image, 1)
    assert shown["events"] == []


def test_guards_are_read_and_a_typo_is_told() -> None:
    assert read_guards(["sync=warn", "stalled=off"]) == {
        GuardName.SYNC: GuardAction.WARN,
        GuardName.STALLED: GuardAction.OFF,
    }
    with pytest.raises(UsageError, match=r"--guard sink=warn: write NAME=ACTION; names are headroom, .*sync"):
        read_guards(["sink=warn"])
    with pytest.raises(UsageError, match="actions stop, warn, off"):
        read_guards(["sync"])
