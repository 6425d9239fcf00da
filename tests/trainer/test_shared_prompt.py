"""A prompt forwarded once gives the log-probabilities, entropies and gradients of one forwarded with every reply."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
)

from services.trainer.failures import RunFailed
from services.trainer.learning.shared_prompt import Limits, distinct_prompts, refusal, score_completions
from shared.contracts.run_config import SharedPrompt
from tests.models import make_model
from tests.trainer.test_learner import run_config

PROMPT, COMPLETION, WINDOW = 24, 20, 16
SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ALL = Limits(forward=10**6, kept=10**6)

CONFIGS: dict[str, PreTrainedConfig] = {
    "dense (Qwen3)": Qwen3Config(**SHAPE),
    "dense (Llama)": LlamaConfig(**SHAPE),
    "sliding window (Mistral)": MistralConfig(**SHAPE, sliding_window=WINDOW),
    "sliding and full, softcapped (Gemma 2)": Gemma2Config(**SHAPE, sliding_window=WINDOW, query_pre_attn_scalar=16),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def policy(config: PreTrainedConfig) -> Any:
    """A random model with TRL's fused head and a LoRA whose B is not zero."""
    from peft import LoraConfig, get_peft_model
    from trl.trainer.utils import add_fused_lm_head

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.data.normal_(0, 0.05)
    return model


def batch(rows: list[tuple[int, int, int]]) -> tuple[Tensor, Tensor]:
    """Ids and mask of rows (which prompt, its tokens, completion tokens), padded as TRL does."""
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(3, 300, (10, PROMPT), generator=generator)
    ids = torch.zeros(len(rows), PROMPT + COMPLETION, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, width, completion) in enumerate(rows):
        ids[row, PROMPT - width : PROMPT] = prompts[prompt, :width]
        ids[row, PROMPT : PROMPT + completion] = torch.randint(3, 300, (completion,), generator=generator)
        mask[row, PROMPT - width : PROMPT + completion] = 1
    return ids, mask


GROUPS = [(0, 24, 20), (0, 24, 3), (0, 24, 0), (1, 1, 5), (1, 1, 20), (2, 7, 1), (2, 7, 7), (2, 7, 9), (2, 7, 0)]


def plain(model: Any, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :PROMPT] = -100
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return output.log_probs[:, -COMPLETION:], output.entropy[:, -COMPLETION:]


def values_and_gradient(model: Any, found: tuple[Tensor, Tensor], mask: Tensor) -> list[Tensor]:
    """Both per counted token, and the gradient of a sum that weighs every token differently."""
    counted = mask[:, PROMPT:].bool()
    weights = torch.linspace(-1, 1, counted.numel()).reshape(counted.shape)
    model.zero_grad()
    torch.autograd.backward((found[0] * weights)[counted].sum())
    gradient = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    return [found[0][counted].detach(), found[1][counted].detach(), gradient.clone()]


def scored(model: Any, ids: Tensor, mask: Tensor, limits: Limits) -> tuple[Tensor, Tensor]:
    found = score_completions(model, ids, mask, COMPLETION, limits)
    return found.logprobs, found.entropies


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize(
    "limits", [ALL, Limits(forward=40, kept=200, repeated=0.3), Limits(forward=1, kept=0)], ids=str
)
def test_values_and_gradients_are_the_plain_ones(kind: str, limits: Limits) -> None:
    model = policy(CONFIGS[kind])
    ids, mask = batch(GROUPS)
    expected = values_and_gradient(model, plain(model, ids, mask), mask)
    found = values_and_gradient(model, scored(model, ids, mask, limits), mask)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-5


@pytest.mark.parametrize(
    "rows",
    [[GROUPS[row] for row in (4, 0, 7, 5, 3, 8, 1)] + [(5, 9, 4)], [(1, 1, 5), (1, 1, 2)]],
    ids=["rows of groups mixed", "prompts of one token"],
)
def test_any_batch_is_scored_as_the_plain_one(rows: list[tuple[int, int, int]]) -> None:
    model = policy(CONFIGS["dense (Qwen3)"])
    ids, mask = batch(rows)
    expected = values_and_gradient(model, plain(model, ids, mask), mask)
    found = values_and_gradient(model, scored(model, ids, mask, ALL), mask)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-5


def test_a_batch_without_a_single_counted_reply_has_a_gradient_of_zero() -> None:
    model = policy(CONFIGS["dense (Qwen3)"])
    ids, mask = batch([(0, 24, 0), (1, 7, 0)])
    logprobs, _ = scored(model, ids, mask, ALL)
    torch.autograd.backward((logprobs * mask[:, PROMPT:]).sum())
    gradients = [weight.grad for name, weight in model.named_parameters() if "lora" in name]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


def test_the_prompt_is_computed_once_a_group() -> None:
    model = policy(CONFIGS["dense (Qwen3)"])
    tokens: list[int] = []
    layer = model.get_base_model().model.layers[0].mlp
    layer.register_forward_pre_hook(lambda _, given: tokens.append(given[0].shape[0] * given[0].shape[1]))
    ids, mask = batch([(0, 24, 10)] * 8)
    scored(model, ids, mask, ALL)
    assert sum(tokens) == 23 + 8 * 10


@pytest.mark.parametrize(("prompts", "masks"), [((0, 0, 0), 1), ((0, 0, 1), 3)], ids=["one prompt", "two prompts"])
def test_all_layers_and_the_rows_of_one_prompt_share_an_attention_mask(prompts: tuple[int, ...], masks: int) -> None:
    model = policy(CONFIGS["dense (Qwen3)"])
    given: list[Tensor] = []
    for layer in model.get_base_model().model.layers:
        layer.register_forward_pre_hook(lambda _, __, named: given.append(named["attention_mask"]), with_kwargs=True)
    ids, mask = batch([(prompt, 24 - prompt, 10 + row) for row, prompt in enumerate(prompts)])
    scored(model, ids, mask, ALL)
    assert all(one is given[-1] for one in given[-SHAPE["num_hidden_layers"] :])
    assert given[-1].shape == (masks, 1, 12, 23 + 12)
    assert given[-1].dtype == torch.float32


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, PROMPT)), min_size=1, max_size=8),
)
@settings(max_examples=40, deadline=None)
def test_distinct_prompts_give_back_every_rows_prompt(rows: list[tuple[int, int]]) -> None:
    ids, mask = batch([(prompt, width, 1) for prompt, width in rows])
    ids, mask = ids[:, :PROMPT], mask[:, :PROMPT]
    prompts = distinct_prompts(ids, mask)
    assert len(prompts.ids) == len(set(rows))
    for row, owner in enumerate(prompts.of_row.tolist()):
        assert torch.equal(prompts.ids[owner][prompts.mask[owner].bool()], ids[row][mask[row].bool()])


def test_models_whose_cache_can_be_repeated_are_not_refused() -> None:
    for config in CONFIGS.values():
        assert refusal(AutoModelForCausalLM.from_config(config, dtype=torch.float32)) == ""


LINEAR = Qwen3_5TextConfig(
    **SHAPE,
    linear_num_value_heads=4,
    linear_num_key_heads=2,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
)


def test_linear_attention_falls_back_and_says_so_or_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from services.trainer.learning.learner import shares_prompts

    model = AutoModelForCausalLM.from_config(LINEAR, dtype=torch.float32)
    config = run_config(make_model(tmp_path / "tiny"))
    with caplog.at_level(logging.WARNING):
        assert not shares_prompts(config, model)
    assert "LinearAttentionLayer" in caplog.text
    with pytest.raises(RunFailed, match=r"shared_prompt is on.*LinearAttentionLayer.*auto or off"):
        shares_prompts(config.model_copy(update={"shared_prompt": SharedPrompt.ON}), model)


def test_a_model_that_ignores_its_cache_is_found_out() -> None:
    model = AutoModelForCausalLM.from_config(CONFIGS["dense (Qwen3)"], dtype=torch.float32)
    forward = model.model.forward

    def forgetful(*given: Any, **named: Any) -> Any:
        cached = named.get("past_key_values")
        if cached is not None and cached.get_seq_length():
            for layer in cached.layers:
                layer.values = torch.zeros_like(layer.values)
        return forward(*given, **named)

    model.model.forward = forgetful
    assert "differ" in refusal(model)
