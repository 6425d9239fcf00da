"""One real GRPO step through our seams, on samples that transformers itself drew."""

from pathlib import Path
from typing import Any

import pytest

from shared.contracts.run_config import LoraConfig, RunConfig
from tests.models import make_model
from tests.trainer.sampling import draw, load_tokenizer, prompt_of

PROMPTS, K, MAX_TOKENS = 4, 4, 12


def run_config(model: Path, **changes: Any) -> RunConfig:
    fields: dict[str, Any] = {
        "domain": "shop",
        "model": str(model),
        "band_id": "band",
        "steps": 2,
        "prompts_per_step": PROMPTS,
        "k": K,
        "learning_rate": 1e-3,
        "lora": LoraConfig(rank=4, alpha=8),
        "max_tokens": MAX_TOKENS,
    }
    return RunConfig(**fields | changes)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)  # two threads on a busy machine wait for each other at every tiny layer
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


class Sampled:
    """A rollout function that draws with the policy in training; keeps what it drew."""

    def __init__(self, model: Path, engine_offset: float = 0.0) -> None:
        self.tokenizer = load_tokenizer(model)
        self.asked: list[list[str]] = []
        self.engine_offset = engine_offset

    def __call__(self, prompts: list[str], learner: Any) -> dict[str, Any]:
        self.asked.append(prompts)
        columns: dict[str, list[Any]] = {name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask")}
        rewards: list[float | None] = []
        learner.model.eval()
        for task_id in prompts[::K]:
            prompt_ids = prompt_of(self.tokenizer, task_id)
            for ids, logprobs in draw(learner.model, prompt_ids, K, MAX_TOKENS, self.tokenizer.eos_token_id, 0):
                columns["prompt_ids"].append(prompt_ids)
                columns["completion_ids"].append(ids)
                columns["logprobs"].append([value + self.engine_offset for value in logprobs])
                columns["env_mask"].append([1] * len(ids))
                rewards.append(float(ids[0] % 2))
        learner.model.train()
        return columns | {"execution_reward": rewards}


def trained(model: Path, folder: Path, rollout: Sampled, **changes: Any) -> tuple[Any, list[Any]]:
    """A learner after its steps, and the agreement of each."""
    from transformers import TrainerCallback

    from services.trainer.learning.learner import build_learner

    agreements: list[Any] = []
    synced: list[int] = []

    class Keep(TrainerCallback):  # type: ignore[misc]
        learner: Any

        def on_step_end(self, *_: Any, **__: Any) -> None:
            agreements.append(self.learner.agreement)

    keep = Keep()
    config = run_config(model, **changes)
    batches = [[f"t{step}{prompt}" for prompt in range(PROMPTS)] for step in range(config.steps)]
    learner = build_learner(config, folder, batches, rollout, lambda: synced.append(1), [keep])
    keep.learner = learner
    learner.train()
    assert len(synced) == config.steps, "TRL must ask for the current weights once a step"
    assert rollout.asked == [[task for task in batch for _ in range(K)] for batch in batches], "k times each, in order"
    return learner, agreements


def test_a_step_on_its_own_samples_agrees_with_the_engine_and_measures_kl(model: Path, tmp_path: Path) -> None:
    learner, (first, second) = trained(model, tmp_path, Sampled(model))
    assert first.logprob_gap < 1e-4 and second.logprob_gap < 1e-4
    assert first.importance_ratio == pytest.approx(1.0, abs=1e-4)
    assert first.kl == 0.0, "B starts at zero: the first policy is the base"
    assert second.kl > 1e-6, "the second policy is not"
    weights = dict(learner.model.named_parameters())
    assert any(value.abs().max() > 0 for name, value in weights.items() if "lora_B" in name)
    assert not any("lm_head" in name and "lora" in name for name in weights)


def test_an_engine_that_disagrees_shows_in_gap_and_ratio(model: Path, tmp_path: Path) -> None:
    _, (first, *_) = trained(model, tmp_path, Sampled(model, engine_offset=-0.1), steps=1)
    assert first.logprob_gap == pytest.approx(0.1, abs=1e-4)
    assert first.importance_ratio == pytest.approx(2.718281828**0.1, abs=1e-4)


def test_the_same_seed_trains_the_same_adapter(model: Path, tmp_path: Path) -> None:
    from shared.artifacts import adapter_digest

    digests = []
    for twin in ("a", "b"):
        trained(model, tmp_path / twin, Sampled(model))
        digests.append(adapter_digest(tmp_path / twin / "checkpoint-2"))
    assert digests[0] == digests[1]
    trained(model, tmp_path / "c", Sampled(model), seed=1)
    assert adapter_digest(tmp_path / "c" / "checkpoint-2") != digests[0]


@pytest.mark.parametrize(
    ("rows", "max_tokens", "unit", "at_most", "expected"),
    [
        (128, 128, 1, None, 32),
        (512, 4096, 1, None, 1),
        (512, 1024, 1, None, 4),
        (12, 512, 1, None, 6),
        (7, 600, 1, None, 1),
        (128, 128, 8, None, 32),
        (512, 4096, 16, None, 16),
        (48, 100, 8, None, 24),
        (512, 128, 1, 1, 1),
        (12, 128, 1, 5, 4),
        (128, 128, 8, 1, 8),
    ],
)
def test_a_micro_batch_is_a_whole_share_of_the_batch_within_its_bound_and_parts_no_group(
    rows: int, max_tokens: int, unit: int, at_most: int | None, expected: int
) -> None:
    from services.trainer.learning.sizes import micro_batch_rows

    assert micro_batch_rows(rows, max_tokens, unit, at_most) == expected


def test_memory_for_the_backward_pass_is_measured_on_the_model_itself(tmp_path: Path) -> None:
    from services.trainer.learning.learner import build_learner
    from services.trainer.learning.sizes import CPU_BYTES

    found = []
    for layers in (1, 2, 3):
        model = make_model(tmp_path / str(layers), layers=layers)
        learner = build_learner(run_config(model), tmp_path, [["a"] * 4], Sampled(model), lambda: None, [])
        assert learner.limits is not None
        found.append(CPU_BYTES / learner.limits.kept)
        repeated = learner.limits.repeated * found[-1]
        assert repeated == pytest.approx(layers * 2 * 32 * 4, rel=1e-3), "keys and values of one head of 32, float32"
    assert found[2] - found[1] == pytest.approx(found[1] - found[0], rel=0.02), "each layer keeps as much as the other"
    assert found[1] - found[0] > 4 * (4 * 64 + 4 * 128), "float32: at least the norms and the MLP of 64 and 128"
