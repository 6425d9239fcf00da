"""A run's figures reach its trackers; a tracker that is missing is refused, one that fails costs no training."""

import contextlib
import json
import sqlite3
import struct
from collections import defaultdict
from pathlib import Path

import pytest

from services.trainer.failures import RunFailed
from services.trainer.trackers import missing_trackers
from shared.contracts.run_config import GuardName, Tracker
from shared.contracts.trainer import EventKind
from tests.trainer.test_attempt import RUN, STEPS, Bench, bench, model
from tests.trainer.test_records import step

__all__ = ["bench", "model"]  # fixtures


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard would show: tag to step to value, of all event files of a folder."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, dict[int, float]] = defaultdict(dict)
    for file in sorted(folder.glob("events.out.tfevents.*")):
        content, place = file.read_bytes(), 0
        while place < len(content):  # a record: length, its checksum, data, its checksum
            (length,) = struct.unpack_from("<Q", content, place)
            event = Event.FromString(content[place + 12 : place + 12 + length])
            place += length + 16
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found[value.tag][event.step] = value.simple_value
    return found


def test_every_number_of_a_step_is_a_figure_and_so_is_a_guard_that_fires() -> None:
    from services.trainer.job.reporting import step_figures

    logged = step(3, 1, reward=0.25).model_copy(update={"lost": {"timeout": 2}})
    figures = step_figures(logged, {GuardName.SYNC: 0.3})
    assert figures["sqlclimb/reward"] == 0.25 and figures["sqlclimb/zero_variance"] == 0.0
    assert figures["sqlclimb/logprob_gap"] == 1e-6 and figures["sqlclimb/completion_tokens"] == 12.0
    assert figures["sqlclimb/seconds/learn"] == 1.0 and figures["sqlclimb/lost/timeout"] == 2.0
    assert figures["sqlclimb/guards/sync"] == 0.3
    assert "sqlclimb/kl" not in figures, "it was not measured"
    assert not {"sqlclimb/adapter_name", "sqlclimb/probe", "sqlclimb/at"} & figures.keys()


def test_tensorboard_gets_each_steps_record_and_what_trl_logs_over_all_attempts(bench: Bench) -> None:
    settings = {"report_to": ["tensorboard"], "guards": {"zero_variance": "warn"}}
    bench.peers.script.equal_rewards = {1, 2, 3}
    assert bench.train(bench.begin(steps=STEPS, **settings)) == STEPS
    _, steps = bench.outcome()
    found = scalars(bench.settings.checkpoints / RUN / "tensorboard")
    for name in ("reward", "zero_variance", "logprob_gap", "completion_tokens", "seconds/total"):
        assert list(found[f"train/sqlclimb/{name}"]) == [1, 2, 3], name
    assert found["train/sqlclimb/reward"] == pytest.approx({step.step: step.reward for step in steps})
    assert list(found["train/sqlclimb/guards/zero_variance"]) == [3], "it is judged from the third step on"
    assert list(found["train/loss"]) == [1, 2, 3] and "train/frac_reward_zero_std" in found


@pytest.mark.slow
def test_a_tracker_that_fails_is_told_once_and_costs_no_training(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(blocked))
    assert bench.train(bench.begin(steps=2, report_to=["tensorboard"])) == 2
    (told,) = [event for event in bench.records.events() if event.kind is EventKind.WARNED]
    assert told.message.startswith("`report_to`: tensorboard failed and gets no more figures of this attempt; the run")
    assert len(bench.outcome()[1]) == 2


def test_what_is_not_installed_is_refused_with_what_to_install(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("wandb", "mlflow") else real(name))
    assert missing_trackers([Tracker.TENSORBOARD]) == ""
    with pytest.raises(RunFailed, match=r"`report_to`: wandb cannot be reported to: wandb is not installed where the"):
        bench.train(bench.begin(report_to=["tensorboard", "wandb"]))
    assert bench.peers.requests == [], "nothing was sampled"


@pytest.mark.slow
def test_mlflow_and_wandb_get_each_steps_record(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real packages where they are installed: MLflow writes to a folder, W&B to an offline run."""
    mlflow = pytest.importorskip("mlflow", reason="pip install mlflow-skinny wandb")
    pytest.importorskip("wandb", reason="pip install mlflow-skinny wandb")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    assert bench.train(bench.begin(steps=2, report_to=["mlflow", "wandb"])) == 2
    assert not [event for event in bench.records.events() if event.kind is EventKind.WARNED]
    client = mlflow.MlflowClient((tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("sqlclimb")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == RUN
    history = client.get_metric_history(run.info.run_id, "sqlclimb/reward")
    assert [metric.step for metric in history] == [1, 2]
    assert [metric.value for metric in history] == pytest.approx([step.reward for step in bench.outcome()[1]])
    (offline,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"sqlclimb/reward" in offline.read_bytes()


@pytest.mark.slow
def test_trackio_gets_each_steps_record(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real package where it is installed; it keeps a project in one SQLite file."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio", reason="pip install trackio")
    assert bench.train(bench.begin(steps=2, report_to=["trackio"])) == 2
    assert not [event for event in bench.records.events() if event.kind is EventKind.WARNED]
    with contextlib.closing(sqlite3.connect(tmp_path / "sqlclimb.db")) as project:
        rows = [
            json.loads(text) for (text,) in project.execute("SELECT metrics FROM metrics WHERE run_name = ?", (RUN,))
        ]
    ours = [row for row in rows if "train/sqlclimb/reward" in row]  # its own step counts calls
    rewards = {row["train/global_step"]: row["train/sqlclimb/reward"] for row in ours}
    assert rewards == pytest.approx({step.step: step.reward for step in bench.outcome()[1]})
