"""A step's arithmetic as planned, against what PyTorch counts while a real model takes it."""

from pathlib import Path
from typing import Any

import pytest

from services.trainer.planning.planner import read_shape
from services.trainer.planning.step_flops import StepTokens, step_flops
from shared.contracts.planning import ModelShape
from tests.models import make_model
from tests.trainer.test_learner import run_config

PROMPT, REPLY, PROMPTS, K, RANK = 48, 32, 2, 3, 4


def counted(folder: Path, *, recompute: bool, base_forward: bool) -> int:
    """FLOPs of forward and backward of PROMPTS x K rows, each with its prompt; attention over all pairs, no head."""
    import torch
    from peft import get_peft_model
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM

    from services.trainer.learning.settings import lora_config

    torch.set_num_threads(1)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    model = get_peft_model(model, lora_config(run_config(folder)))
    model.enable_input_require_grads()  # else the first layer has no gradient to hand on
    if recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    ids = torch.randint(10, 200, (PROMPTS * K, PROMPT + REPLY))
    backbone = model.get_base_model().model
    with FlopCounterMode(display=False) as counter:
        if base_forward:
            with torch.no_grad(), model.disable_adapter():
                backbone(input_ids=ids)
        backbone(input_ids=ids, use_cache=False).last_hidden_state.sum().backward()
    return int(counter.get_total_flops())


@pytest.mark.parametrize(("recompute", "base_forward"), [(False, False), (True, False), (False, True)])
def test_a_step_with_frozen_weights_costs_what_pytorch_counts(
    tmp_path: Path, recompute: bool, base_forward: bool
) -> None:
    folder = make_model(tmp_path / "model", hidden=96, layers=3, mlp=256)
    shape = read_shape(folder)
    assert shape is not None
    tokens = StepTokens(PROMPT, REPLY, PROMPTS, K, shared=False)
    planned = step_flops(
        shape.model_copy(update={"vocabulary": 0}),
        RANK,
        tokens,
        recomputed=float(recompute),
        base_forwards=float(base_forward),
    )
    # eager attention multiplies every pair, also those that the causal mask drops
    dropped = PROMPTS * K * (PROMPT + REPLY) ** 2 - tokens.attended
    forwards = 3 + recompute + base_forward
    planned += forwards * 4 * dropped * shape.heads * shape.head_dim * shape.layers
    assert counted(folder, recompute=recompute, base_forward=base_forward) == pytest.approx(planned, rel=0.02)


def test_a_frozen_weight_costs_four_operations_a_token_six_with_recomputing_and_a_shared_prompt_is_counted_once() -> (
    None
):
    shape = ModelShape(layers=1000, hidden=512, mlp=2048, heads=1, kv_heads=1, head_dim=64, vocabulary=1, tied=True)
    alone = StepTokens(prompt=0, reply=1, prompts=1, k=1, shared=False)
    weights = 1000 * (512 * 64 * 4 + 512 * 2048 * 3)
    plain = step_flops(shape, 1, alone, recomputed=0.0, base_forwards=0.0)
    assert plain == pytest.approx(4 * weights, rel=0.02)
    assert step_flops(shape, 1, alone, recomputed=1.0, base_forwards=0.0) == pytest.approx(6 * weights, rel=0.02)
    once, each = (StepTokens(prompt=1000, reply=100, prompts=1, k=16, shared=shared) for shared in (True, False))
    assert (once.computed, each.computed) == (1000 + 1600, 16000 + 1600)
    assert once.scored == each.scored == 1600
    assert each.attended - once.attended == 15 * 1000**2 / 2
