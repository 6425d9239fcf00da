"""Sampling from the policy in one padded batch: each prompt is computed once, finished rows leave the batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

COMPACT_EVERY = 8
"""Steps between two removals of finished rows: removal copies the cache, so not at every step."""


@dataclass(frozen=True)
class Draw:
    """How tokens are drawn."""

    temperature: float
    top_p: float
    max_tokens: int


def pick(logits: torch.Tensor, draw: Draw, generator: torch.Generator) -> torch.Tensor:
    """One token a row, shape (rows,), from logits (rows, vocabulary): temperature first, then the nucleus."""
    probabilities = torch.softmax(logits.float() / draw.temperature, dim=-1)
    ordered, index = probabilities.sort(dim=-1, descending=True)
    outside = ordered.cumsum(dim=-1) - ordered >= draw.top_p  # the token that crosses top_p stays
    chosen = torch.multinomial(ordered.masked_fill(outside, 0.0), 1, generator=generator)
    return index.gather(-1, chosen).squeeze(-1)


@torch.inference_mode()
def sample(
    model: Any, prompts: Sequence[list[int]], k: int, draw: Draw, pad: int, eos: int, generator: torch.Generator
) -> list[list[list[int]]]:
    """`k` replies a prompt, each without its end token; a reply of `max_tokens` ids was cut."""
    longest = max(map(len, prompts))
    input_ids = torch.tensor([[pad] * (longest - len(ids)) + ids for ids in prompts])
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    output = model(
        input_ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
    )
    cache.batch_repeat_interleave(k)
    mask, positions = mask.repeat_interleave(k, 0), positions[:, -1:].repeat_interleave(k, 0)
    logits = output.logits[:, -1].repeat_interleave(k, 0)
    replies: list[list[int]] = [[] for _ in range(len(prompts) * k)]
    rows = torch.arange(len(replies))  # which reply each row of the batch writes
    alive = torch.ones(len(rows), dtype=torch.bool)
    for step in range(draw.max_tokens):
        tokens = pick(logits, draw, generator)
        alive &= tokens != eos
        for row, token in zip(rows[alive].tolist(), tokens[alive].tolist(), strict=True):
            replies[row].append(token)
        if not alive.any() or step + 1 == draw.max_tokens:
            break
        if step % COMPACT_EVERY == COMPACT_EVERY - 1 and not alive.all():
            cache.batch_select_indices(alive.nonzero().squeeze(-1))
            rows, tokens, mask, positions = rows[alive], tokens[alive], mask[alive], positions[alive]
            alive = alive[alive]
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=-1)
        positions = positions + 1
        output = model(
            tokens[:, None], attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        logits = output.logits[:, -1]
    return [replies[start : start + k] for start in range(0, len(replies), k)]
