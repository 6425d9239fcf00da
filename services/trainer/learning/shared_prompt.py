"""A group's prompt is forwarded once: its keys and values serve every completion of the group, and autograd follows.

The prompt without its last token fills a cache; each completion's forward begins with that last token, so that every
position it computes is one whose next token is scored. Completions of like length share a forward. What of them does
not fit into memory is recomputed in the backward pass, forward by forward.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.masking_utils import create_masks_for_generate

TRIED_TOKENS = 16
"""Prompt and completion of the trial in `refusal`."""

TRIED_ERROR, TRIED_ERROR_FLOAT32 = 0.05, 1e-3
"""Relative error of the logits that rounding explains, in half precision and in float32."""

IGNORED_LABEL = -100
"""Positions that are not scored, as in torch.nn.functional.cross_entropy."""


@dataclass(frozen=True)
class Limits:
    """What memory allows, in tokens; padding counts."""

    forward: int
    """In one forward of completions, but at least one row."""
    kept: int
    """Whose activations wait for the backward pass: the prompts', and as many forwards' of completions as fit."""
    repeated: float = 0.0
    """What a row costs for each token of its prompt, whose keys and values its attention holds once more: in tokens."""


@dataclass(frozen=True)
class Scored:
    """Of each completion token: its log-probability and the entropy it was drawn at, in nats; rows × completion."""

    logprobs: Tensor
    entropies: Tensor


@dataclass(frozen=True)
class Prompts:
    """The distinct prompts of a batch, padded left."""

    ids: Tensor
    mask: Tensor
    of_row: Tensor
    """Index of each row's prompt."""


def distinct_prompts(ids: Tensor, mask: Tensor) -> Prompts:
    """The prompts of `rows × prompt` ids (padded left, mask 1 where a token is), each once, cut to the longest.

    At least two wide: a cache without a single column would leave a distributed backward unprepared.
    """
    first = int(mask.any(dim=0).nonzero()[0])
    missing = max(0, 2 - ids[:, first:].size(1))
    ids, mask = (torch.nn.functional.pad(part[:, first:], (missing, 0)) for part in (ids, mask))
    distinct, of_row = torch.unique(ids.masked_fill(mask == 0, -1), dim=0, return_inverse=True)
    return Prompts(distinct.clamp(min=0), (distinct >= 0).long(), of_row)


def score_completions(
    model: Any,
    ids: Tensor,
    mask: Tensor,
    completion_width: int,
    limits: Limits,
    first_model: Any = None,
) -> Scored:
    """Score the completions of rows that share prompts; the gradient is that of one padded forward of all rows.

    `ids`, `mask`: rows × (prompt, padded left; completion, padded right). `model` has TRL's fused head;
    `first_model`: called in its place for the first forward (the wrapper that prepares a distributed backward).
    Rows without a completion (all masked) are left out, their values are 0.
    """
    prompt_width = ids.size(1) - completion_width
    prompts = distinct_prompts(ids[:, :prompt_width], mask[:, :prompt_width])
    completions, lengths = ids[:, prompt_width:], mask[:, prompt_width:].sum(dim=1)
    rows = lengths.nonzero().flatten()
    if not len(rows):  # something must carry a gradient, if only zeros
        rows, lengths = rows.new_zeros(1), lengths.new_ones(len(lengths))
    repeated = limits.repeated * prompts.ids.size(1)
    forwards = _forwards(rows, lengths, repeated, limits.forward)
    cache = _prompt_cache(model if first_model is None else first_model, model.config, prompts)
    recomputed = len(forwards) - _kept(forwards, lengths, repeated, limits.kept - prompts.ids.numel())
    parts: list[tuple[Tensor, Tensor]] = []
    for number, chunk in enumerate(forwards):  # the recomputed first: the backward pass, last first, comes to them last
        score = _scoring(model, cache, prompts, chunk, completions[chunk], lengths[chunk])
        if number >= recomputed or not torch.is_grad_enabled():
            parts.append(score())
        else:
            parts.append(checkpoint(score, use_reentrant=False, preserve_rng_state=False))
    order = torch.cat(forwards)
    logprobs, entropies = (
        _placed(list(values), order, ids.size(0), completion_width) for values in zip(*parts, strict=True)
    )
    return Scored(logprobs, entropies)


def _cost(rows: int, width: int, repeated: float) -> int:
    return round(rows * (width + repeated))


def _forwards(rows: Tensor, lengths: Tensor, repeated: float, limit: int) -> list[Tensor]:
    """Rows of each forward: like lengths together, shortest first, padding counted."""
    order = rows[torch.argsort(lengths[rows], stable=True)]
    forwards: list[list[int]] = [[]]
    for row, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        if forwards[-1] and _cost(len(forwards[-1]) + 1, length, repeated) > limit:
            forwards.append([])
        forwards[-1].append(row)
    return [torch.tensor(chunk, device=rows.device) for chunk in forwards]


def _kept(forwards: list[Tensor], lengths: Tensor, repeated: float, budget: int) -> int:
    """How many of the last forwards keep their activations, at least one: all that fit into `budget` tokens."""
    costs = [_cost(len(chunk), int(lengths[chunk].max()), repeated) for chunk in reversed(forwards)]
    return max(1, sum(total <= budget for total in accumulate(costs)))


def _prompt_cache(model: Any, config: Any, prompts: Prompts) -> DynamicCache:
    """Keys and values of every prompt token but the last."""
    cache = DynamicCache(config=config)
    ids, mask = prompts.ids[:, :-1], prompts.mask[:, :-1]
    model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=_positions(mask),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return cache


def _scoring(
    model: Any, cache: DynamicCache, prompts: Prompts, rows: Tensor, completions: Tensor, lengths: Tensor
) -> Callable[[], tuple[Tensor, Tensor]]:
    width = int(lengths.max())
    owner = prompts.of_row[rows]
    column = torch.arange(width, device=rows.device)
    labels = completions[:, :width].masked_fill(column >= lengths[:, None], IGNORED_LABEL)
    ids = torch.cat([prompts.ids[owner, -1:], completions[:, : width - 1]], dim=1)
    past = prompts.mask[owner, :-1]

    def score() -> tuple[Tensor, Tensor]:
        output = model(
            input_ids=ids,
            attention_mask=_attention_mask(model, cache, past, width),
            position_ids=past.sum(dim=1, keepdim=True) + column,
            past_key_values=_repeated(cache, owner),
            shift_labels=labels,
            fused_lm_head=True,
        )
        return output.log_probs, output.entropy

    return score


def _attention_mask(model: Any, cache: DynamicCache, past: Tensor, width: int) -> Any:
    """What `width` new tokens see, in the form that the model's attention takes; `past`: the cache's mask, row by row.

    Padding on the right needs no mask: nothing before it sees it. So the rows of one prompt share one. PyTorch's
    attention is given it ready to be added: else each layer makes that of its own, and keeps it for the backward pass.
    """
    mask = torch.cat([past, past.new_ones(len(past), width)], dim=1)
    config = model.config.get_text_config()
    if config._attn_implementation != "sdpa":
        return mask
    if bool((past == past[:1]).all()):
        mask = mask[:1]
    embeddings = torch.empty(len(mask), width, 0, dtype=model.dtype, device=mask.device)
    seen = create_masks_for_generate(config, embeddings, mask, cache)
    if isinstance(seen, dict):
        return {kind: _additive(of_kind, model.dtype) for kind, of_kind in seen.items()}
    return _additive(seen, model.dtype)


def _additive(seen: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """0 where it is true and minus infinity elsewhere, in the dtype that attention computes in: autocast's or `dtype`.

    None, where nothing is hidden, stays None.
    """
    if seen is None:
        return None
    if torch.is_autocast_enabled(seen.device.type):
        dtype = torch.get_autocast_dtype(seen.device.type)
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, float("-inf"))


def _repeated(cache: DynamicCache, owner: Tensor) -> DynamicCache:
    """The cache with one row for each entry of `owner`, an index of prompts. The given cache stays as it is."""
    repeated = copy.copy(cache)
    repeated.layers = []
    for layer in cache.layers:
        twin = copy.copy(layer)
        one = layer.keys.size(0) == 1
        twin.keys, twin.values = (
            states.expand(len(owner), -1, -1, -1) if one else states[owner] for states in (layer.keys, layer.values)
        )
        repeated.layers.append(twin)
    return repeated


def _positions(mask: Tensor) -> Tensor:
    """Position of each token in its own sequence, padding not counted, as in the engine."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def _placed(parts: list[Tensor], order: Tensor, rows: int, width: int) -> Tensor:
    """`rows × width` with the parts' values in the rows that `order` names; 0 elsewhere."""
    padded = torch.cat([torch.nn.functional.pad(part, (0, width - part.size(1))) for part in parts])
    return padded.new_zeros(rows, width).index_copy(0, order, padded)


@torch.no_grad()
def refusal(model: Any) -> str:
    """Why prompts of this model (a causal language model, no adapter) cannot be shared; empty when they can.

    Also tries it: a cache that a model fills but does not read in full shows in the logits.
    """
    for layer in DynamicCache(config=model.config).layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            return f"its cache has layers of type {type(layer).__name__}, which cannot be repeated over a group"
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.get_text_config().vocab_size, (1, 2 * TRIED_TOKENS), generator=generator)
    ids = ids.to(model.device)
    training = model.training
    model.eval()
    try:
        whole = model(input_ids=ids).logits[:, TRIED_TOKENS:].float()
        prompt = distinct_prompts(ids[:, : TRIED_TOKENS + 1], torch.ones_like(ids[:, : TRIED_TOKENS + 1]))
        owner = ids.new_zeros(2)
        shared = model(
            input_ids=ids[owner, TRIED_TOKENS:],
            attention_mask=torch.ones_like(ids[owner]),
            past_key_values=_repeated(_prompt_cache(model, model.config, prompt), owner),
        ).logits.float()
    finally:
        model.train(training)
    error = float((shared - whole).norm() / (2**0.5 * whole.norm()))
    allowed = TRIED_ERROR_FLOAT32 if model.dtype == torch.float32 else TRIED_ERROR
    return "" if error <= allowed else f"its logits differ by {error:.2g} when the prompt comes from the cache"
