"""How many tokens' activations fit into memory while they wait for the backward pass: measured on the model itself."""

from typing import Any

import torch
from torch import Tensor

from services.trainer.learning.shared_prompt import Limits, score_completions
from services.trainer.learning.sizes import CPU_BYTES, GPU_SHARE

FORWARD_TOKENS, CPU_FORWARD_TOKENS = 4_096, 1_024
"""Completion tokens in one forward, on a GPU and without. Its logits are computed in parts. On the CPU
small ones: of what they free less stays resident."""

MEASURED_TOKENS = 64
UNLIMITED = Limits(forward=2**31, kept=2**31)


def limits_of(model: Any) -> Limits:
    """The limits of a model with TRL's fused head and its adapter attached, on the device where it is."""
    on_gpu = model.device.type == "cuda"
    budget = int(GPU_SHARE * torch.cuda.mem_get_info(model.device)[0]) if on_gpu else CPU_BYTES
    token = _bytes_of_row(model, prompt=2) / MEASURED_TOKENS
    repeated = _bytes_of_row(model, prompt=2 + MEASURED_TOKENS) / MEASURED_TOKENS - token
    forward = FORWARD_TOKENS if on_gpu else CPU_FORWARD_TOKENS
    return Limits(forward=forward, kept=int(budget / token), repeated=repeated / token)


def _bytes_of_row(model: Any, prompt: int) -> int:
    """What one more completion of MEASURED_TOKENS keeps for the backward pass, its prompt being there already."""
    return _kept_bytes(model, 3, prompt) - _kept_bytes(model, 2, prompt)


def _kept_bytes(model: Any, rows: int, prompt: int) -> int:
    """Bytes that scoring so many completions of one prompt keeps for the backward pass, weights not counted."""
    weights = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage().data_ptr()
        if storage not in weights:
            kept[storage] = tensor  # held, so that its address is not given to another one
        return tensor

    ids = torch.ones(rows, prompt + MEASURED_TOKENS, dtype=torch.long, device=model.device)
    with (
        torch.autocast(model.device.type, torch.bfloat16, enabled=model.device.type == "cuda"),  # as in the learner
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        score_completions(model, ids, torch.ones_like(ids), MEASURED_TOKENS, UNLIMITED)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
