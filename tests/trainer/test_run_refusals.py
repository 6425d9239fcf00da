"""Runs that cannot work: refused over HTTP before any job, with the field and what to do."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.runs_api import Api, api, model, peers

__all__ = ["api", "model", "peers"]  # fixtures


async def test_shared_prompts_under_fsdp2_are_refused(api: Api) -> None:
    answer = await api.start(workers=2, data_parallel="fsdp2", shared_prompt="on")
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "config.shared_prompt"
    assert "on is not possible with `data_parallel` fsdp2" in answer.json()["detail"] and api.launcher.jobs == {}


async def test_a_tracker_that_is_not_installed_is_refused_before_any_compute(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else real(name))
    answer = await api.start(report_to=["tensorboard", "wandb"])
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "config.report_to"
    assert "wandb is not installed where the trainer runs. Install it in the" in answer.json()["detail"]
    assert api.launcher.jobs == {} and (await api.http.get("/v1/runs/night")).status_code == 404


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"band_id": "nowhere"}, "config.band_id", "no band 'nowhere'"),
        ({"band_id": "empty"}, "config.band_id", "holds 0 tasks"),
        ({"band_id": "elsewhere"}, "config.band_id", "of domain 'other'"),
        ({"prompts_per_step": 11}, "config.band_id", "holds 10 tasks, a step takes 11"),
        ({"model": "/no/such/model"}, "config.model", "/no/such/model/config.json is missing"),
        ({"model": "Qwen/Qwen3-4B"}, "config.model", "is not what inference serves"),
        ({"lora": {"rank": 64}}, "config.lora.rank", "above the largest inference serves: 16"),
        ({"workers": 3}, "config.workers", "4 prompts a step cannot be shared out to 3 evenly"),
        ({"start_from": "day@4"}, "config.start_from", "was never published"),
        ({"start_from": "day"}, "config.start_from", "is no policy"),
        ({"guards": {"sink": "stop"}}, "config.guards.sink.[key]", "'sync'"),
        ({"k": 1}, "config.k", "greater than or equal to 2"),
        ({"learning_rat": 1.0}, "config.learning_rat", "not permitted"),
    ],
)
async def test_a_run_that_cannot_work_is_refused_before_any_job(
    api: Api, changes: dict[str, Any], field: str, words: str
) -> None:
    answer = await api.start(**changes)
    problem = answer.json()
    assert answer.status_code == 422 and words in problem["detail"] and "Nothing was" in problem["detail"]
    assert [error["field"] for error in problem["errors"]] == [field]
    assert api.launcher.jobs == {}
    assert (await api.http.get("/v1/runs/night")).status_code == 404


async def test_a_store_that_cannot_be_written_is_refused_before_any_job(api: Api, tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file where the store should be")
    answer = await api.start()
    assert answer.status_code == 503 and "Make it writable" in answer.json()["detail"]
    assert api.launcher.jobs == {}
