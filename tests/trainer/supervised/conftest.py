"""A tiny model, the services a supervised run reads from, and settings that name them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.trainer.settings import JobSettings
from shared.contracts.run_config import RunConfig
from tests.models import make_model
from tests.trainer.supervised.sources import QUESTION_ONLY, SAMPLING, Sources, serving_sources

BUNDLES = Path(__file__).resolve().parents[3] / "domains"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)  # two threads on a busy machine wait for each other at every tiny layer
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def sources(model: Path, tokens: Path) -> Iterator[Sources]:
    with serving_sources(model, tokens) as found:
        yield found


@pytest.fixture
def settings(sources: Sources, tokens: Path, tmp_path: Path) -> JobSettings:
    """A job's, with leave to read golds."""
    (tmp_path / "artifacts").mkdir()
    return JobSettings(
        db="postgresql://nobody@127.0.0.1:1/none",
        artifacts=(tmp_path / "artifacts").as_uri(),
        checkpoints=tmp_path / "checkpoints",
        rollout_url=sources.url,
        inference_url="http://127.0.0.1:1",
        author_url=sources.url,
        gold_token_name="golds",
        domains=[BUNDLES],
        tokens_file=tokens,
        learner_threads=1,
    )


def sft_config(model: Path, *, golds: bool = False, **changes: Any) -> RunConfig:
    """A small supervised run; of the sampling's replies unless of `golds`."""
    fields: dict[str, Any] = {
        "method": "sft",
        "domain": "shop",
        "model": str(model),
        "regime": QUESTION_ONLY,
        "sft": {"golds": True} if golds else {"sampling_id": SAMPLING},
        "steps": 3,
        "prompts_per_step": 4,
        "learning_rate": 1e-2,
        "lora": {"rank": 4, "alpha": 8},
        "max_tokens": 64,
    }
    return RunConfig.model_validate(fields | changes)
