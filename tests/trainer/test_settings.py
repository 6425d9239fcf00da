"""What the API hands to its jobs."""

import json
import stat
from pathlib import Path

import pytest

from services.trainer.job.__main__ import describe
from services.trainer.settings import JobSettings, TrainerSettings

DSN = "postgresql://sqlclimb:hunter2@127.0.0.1:5432/control"


@pytest.fixture
def settings(tmp_path: Path) -> TrainerSettings:
    return TrainerSettings(
        port=8080,
        db=DSN,
        artifacts=tmp_path.as_uri(),
        checkpoints=tmp_path / "checkpoints",
        rollout_url="http://127.0.0.1:1",
        inference_url="http://127.0.0.1:2",
        tokens_file=tmp_path / "tokens.json",
        token_name="trainer",
        ray_dashboard_url="http://127.0.0.1:3",
    )


def test_a_jobs_settings_travel_whole_in_a_file_only_its_owner_can_read(
    settings: TrainerSettings, tmp_path: Path
) -> None:
    path = tmp_path / "run" / "job.json"
    settings.for_job().write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    read = JobSettings.read(path)
    assert read == settings.for_job() and read.db.get_secret_value() == DSN
    assert "hunter2" not in repr(settings) + repr(read)


def test_without_a_file_they_come_from_the_environment(
    settings: TrainerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = settings.for_job()
    for name, value in job.model_dump(mode="json", exclude_none=True).items():
        text = DSN if name == "db" else value if isinstance(value, str) else json.dumps(value)
        monkeypatch.setenv(f"SQLCLIMB_{name.upper()}", text)
    assert JobSettings.read(None) == job


def test_what_broke_a_job_is_told_in_one_line_without_secrets() -> None:
    from ray.train.v2.api.exceptions import WorkerGroupError

    died = RuntimeError("class_name: RayTrainWorker\nThe actor is dead because its worker died.")
    assert (
        describe(WorkerGroupError("…", {0: died}))
        == "a training worker died: it was killed, or the machine ran out of memory"
    )
    told = describe(RuntimeError(f"Traceback\nconnection to {DSN} failed."))
    assert told == "training broke: connection to postgresql://sqlclimb:***@127.0.0.1:5432/control failed"
