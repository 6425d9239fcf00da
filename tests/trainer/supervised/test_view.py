"""What a person sees of a supervised run in the terminal."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.commands.training import _of_method
from cli.curve import draw_curve
from cli.run_view import drawings, run_table, step_line
from cli.supervised_view import dry_run_lines
from services.trainer import metrics
from services.trainer.planning.planner import presets
from shared.contracts.planning import DryRun
from shared.contracts.run_config import Method, RunConfig
from shared.contracts.supervision import DropReason, SupervisedFigures
from shared.contracts.trainer import Run, RunState, Step
from tests.trainer.supervised.conftest import sft_config
from tests.trainer.test_records import step


def learnt(number: int) -> Step:
    figures = SupervisedFigures(
        token_accuracy=number / 10, entropy=0.5, reply_tokens=120, prompt_tokens=40, passes=number / 2
    )
    return step(number, 1).model_copy(update={"loss": 3.0 / number, "reward": 0.0, "supervised": figures})


def test_a_step_and_a_course_show_loss_and_accuracy_and_no_reward(tmp_path: Path) -> None:
    steps = [learnt(number) for number in (1, 2, 3)]
    line = step_line(steps[1], 3)
    assert "loss 1.500  accuracy 0.200" in line and "passes 1.00" in line and "reward" not in line
    course = drawings(steps)
    assert [text.split()[0] for text in course] == ["loss", "accuracy", "entropy", "gradient", "seconds"]
    assert "3 → 1" in course[0]
    config = sft_config(Path("x"))
    run = Run(run_id="warm", config=config, state=RunState.DONE, attempt=1, steps_done=3, created_at=datetime.now(UTC))
    draw_curve(run, steps, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    assert config.source in [str(cell) for column in run_table([run]).columns for cell in column.cells]


def test_a_dry_run_says_what_is_dropped_and_that_nothing_was_started() -> None:
    dropped = {DropReason.NO_RIGHT_REPLY: 3, DropReason.OVER_WINDOW: 1}
    found = DryRun(
        tasks=10,
        kept=6,
        dropped=dropped,
        prompt_tokens=1200,
        reply_tokens=300,
        longest=290,
        window=512,
        passes=2.5,
    )
    text = "\n".join(dry_run_lines(found))
    for words in (
        "10 of the train split",
        "6 examples, 4 tasks dropped",
        "no_right_reply",
        "over_window",
        "2.5 passes",
    ):
        assert words in text
    assert text.endswith("Nothing was started")


@pytest.mark.parametrize("name", presets())
def test_every_preset_serves_a_supervised_run_without_what_is_grpos(name: str) -> None:
    preset = presets()[name].config
    config = RunConfig.model_validate(
        {"model": "x", "domain": "shop"}
        | _of_method(Method.SFT, preset)
        | {"method": "sft", "sft": {"golds": True}}
        | {"regime": {}}
    )
    assert config.learning_rate == 2e-4 and config.kernels == preset.get("kernels", [])
    assert _of_method(Method.GRPO, preset) == preset


def test_a_supervised_run_exports_no_reward_of_nobodys_samples() -> None:
    metrics.show("warm", learnt(2))
    try:
        assert metrics.SUPERVISED_FIGURES["token_accuracy"].labels("warm")._value.get() == 0.2
        assert ("warm",) not in metrics.FIGURES["reward"]._metrics
    finally:
        metrics.forget("warm")
