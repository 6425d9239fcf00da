"""Loss and gradient of one step are stock TRL's, whatever of the forward is computed otherwise."""

import random
from pathlib import Path
from typing import Any

import pytest

from shared.contracts.run_config import Loss, SharedPrompt
from tests.models import make_adapter, make_model
from tests.trainer.sampling import load_tokenizer
from tests.trainer.test_learner import run_config

GROUPS, K, MAX_TOKENS, VOCABULARY = 4, 4, 12, 300


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def adapter(model: Path) -> Path:
    """B is not zero: all LoRA matrices have a gradient."""
    return make_adapter(model, model.parent / "adapter", rank=4)


def samples(model: Path) -> dict[str, list[Any]]:
    """A batch with all that happens: cut, unscorable and lost samples, prompts and replies of any length.

    The engine's log-probabilities are far enough from the trainer's that ratios lie below 1, above it and at the cap.
    """
    draw = random.Random(0)
    eos = load_tokenizer(model).eos_token_id
    columns: dict[str, list[Any]] = {
        name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "execution_reward")
    }
    for group in range(GROUPS):
        prompt = [draw.randrange(10, VOCABULARY) for _ in range((3, 20, 9, 14)[group])]
        for sample in range(K):
            length = draw.randint(1, MAX_TOKENS)
            cut, unscorable = draw.random() < 0.2, (group, sample) == (1, 2)
            ids = [draw.randrange(10, VOCABULARY) for _ in range(MAX_TOKENS if cut else length)]
            if not cut:
                ids[-1] = eos
            if (group, sample) == (2, 3):  # lost: a filler
                ids, unscorable = [eos], True
            columns["prompt_ids"].append(prompt)
            columns["completion_ids"].append(ids)
            columns["logprobs"].append([draw.uniform(-14, -1) for _ in ids])
            columns["env_mask"].append([0 if unscorable else 1] * len(ids))
            columns["execution_reward"].append(None if unscorable else draw.choice([0.0, 0.1, 1.0]))
    return columns


def ours(model: Path, adapter: Path, folder: Path, **changes: Any) -> tuple[Any, Any]:
    """Our learner after one step, and the loss and gradient it kept."""
    from services.trainer.learning.learner import build_learner
    from tests.trainer.stock import KeepGradient

    columns, kept = samples(model), KeepGradient()
    config = run_config(model, steps=1, prompts_per_step=GROUPS, k=K, max_tokens=MAX_TOKENS, **changes)
    batch = [f"p{group}" for group in range(GROUPS)]
    learner = build_learner(config, folder, [batch], lambda prompts, learner: columns, lambda: None, [kept], adapter)
    learner.args.max_grad_norm = 0.0  # compared before clipping
    kept.model = learner.model
    learner.train()
    return learner, kept


def stock(model: Path, adapter: Path, folder: Path, **settings: Any) -> Any:
    """Stock TRL's loss and gradient on the same samples, in other micro-batches, rows shuffled as it does."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from tests.trainer.stock import KeepGradient, stock_trainer

    kept = KeepGradient()
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    trainer = stock_trainer(
        PeftModel.from_pretrained(base, str(adapter), is_trainable=True),
        model,
        folder,
        lambda prompts, trainer: samples(model),
        [kept],
        max_steps=1,
        num_generations=K,
        max_completion_length=MAX_TOKENS,
        mask_truncated_completions=True,
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_max=2.0,
        vllm_importance_sampling_clip_min=None,
        gradient_checkpointing=False,
        max_grad_norm=0.0,
        use_cpu=True,
        **{"per_device_train_batch_size": 2, "gradient_accumulation_steps": GROUPS * K // 2, "bf16": False} | settings,
    )
    kept.model = trainer.model
    trainer.train()
    return kept


def relative(found: Any, expected: Any) -> float:
    return float((found - expected).norm() / expected.norm())


LOSSES = {
    Loss.DAPO: {"loss_type": "dapo", "epsilon_high": 0.28},
    Loss.GRPO: {"loss_type": "grpo", "epsilon_high": 0.28},
    Loss.DR_GRPO: {"loss_type": "dr_grpo", "epsilon_high": 0.28},
    Loss.CISPO: {"loss_type": "cispo", "epsilon_high": 5.0},
    Loss.SAPO: {"loss_type": "sapo", "epsilon_high": 0.28},
    Loss.GSPO: {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_high": 0.28},
}


IN_CI = (Loss.DAPO, Loss.GRPO, Loss.DR_GRPO, Loss.CISPO)


@pytest.mark.parametrize("loss", [pytest.param(one, marks=[] if one in IN_CI else pytest.mark.slow) for one in LOSSES])
def test_loss_and_gradient_are_stock_trls(loss: Loss, model: Path, adapter: Path, tmp_path: Path) -> None:
    expected = stock(model, adapter, tmp_path / "stock", beta=0.0, **LOSSES[loss])
    for sharing in (SharedPrompt.ON, SharedPrompt.OFF) if loss is Loss.DAPO else (SharedPrompt.ON,):
        _, found = ours(model, adapter, tmp_path / sharing, loss=loss, shared_prompt=sharing)
        assert found.loss == pytest.approx(expected.loss, rel=1e-4, abs=1e-7)
        assert relative(found.gradient, expected.gradient) < 1e-4


def test_bnpo_is_stock_trls_in_the_same_micro_batches(model: Path, adapter: Path, tmp_path: Path) -> None:
    one = {"per_device_train_batch_size": GROUPS * K, "gradient_accumulation_steps": 1}
    expected = stock(model, adapter, tmp_path / "stock", beta=0.0, loss_type="bnpo", epsilon_high=0.28, **one)
    learner, found = ours(model, adapter, tmp_path, loss=Loss.BNPO)
    assert learner.args.gradient_accumulation_steps == 1
    assert found.loss == pytest.approx(expected.loss, rel=1e-4, abs=1e-7)
    assert relative(found.gradient, expected.gradient) < 1e-4


def test_the_kl_penalty_is_stock_trls(model: Path, adapter: Path, tmp_path: Path) -> None:
    expected = stock(model, adapter, tmp_path / "stock", beta=0.5, **LOSSES[Loss.DAPO])
    _, found = ours(model, adapter, tmp_path, beta=0.5)
    assert found.loss == pytest.approx(expected.loss, rel=1e-4, abs=1e-7)
    assert relative(found.gradient, expected.gradient) < 1e-4
