"""The small policy's network: Qwen3's architecture at about two million parameters, which vLLM serves as it stands."""

from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from services.trainer.small_policy.settings import Architecture


def make_model(architecture: Architecture, vocabulary: int, context_tokens: int, pad: int, eos: int, seed: int) -> Any:
    """A freshly initialised float32 `Qwen3ForCausalLM`; equal seeds give equal weights."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=architecture.hidden,
            intermediate_size=architecture.mlp,
            num_hidden_layers=architecture.layers,
            num_attention_heads=architecture.heads,
            num_key_value_heads=architecture.key_value_heads,
            head_dim=architecture.head_dim,
            max_position_embeddings=context_tokens,
            tie_word_embeddings=True,
            pad_token_id=pad,
            eos_token_id=eos,
            bos_token_id=None,
            attn_implementation="sdpa",
        )
    ).float()
