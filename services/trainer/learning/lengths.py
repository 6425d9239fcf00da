"""Padding that nobody computes: rows of like length share a forward, which is cut to its own longest. Pure.

A batch as TRL pads it is as wide as its longest prompt and its longest completion; most of a short row is padding.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def by_length(batch: dict[str, Any]) -> dict[str, Any]:
    """A generation batch ordered by completion length, to be split into micro-batches, in place of TRL's shuffle.

    The order changes nothing but the padding: advantages are computed, and the loss is normalised over the whole batch.
    """
    order = torch.argsort(batch["completion_mask"].sum(dim=1), stable=True)

    def ordered(values: Any) -> Any:
        if isinstance(values, Tensor):
            return values[order] if values.ndim else values
        return None if values is None else [values[index] for index in order.tolist()]

    return {name: ordered(values) for name, values in batch.items()}


def like_lengths(mask: Tensor, completion_width: int, size: int) -> Iterator[tuple[Tensor, int, int]]:
    """Row indices of each forward of at most `size` rows, with the first and the end column that it needs.

    `mask`: rows × (prompt, padded left; completion, padded right), 1 where a token is. At least one completion column
    is kept: rows whose completion is masked out have none of their own.
    """
    prompt_width = mask.size(1) - completion_width
    for rows in torch.split(torch.argsort(mask[:, prompt_width:].sum(dim=1), stable=True), size):
        used = mask[rows].any(dim=0).nonzero()
        first, end = (int(used[0]), int(used[-1]) + 1) if used.numel() else (0, 0)
        yield rows, min(first, prompt_width - 1), max(end, prompt_width + 1)


def whole(parts: list[Tensor], order: list[Tensor], width: int) -> Tensor:
    """Completion columns of all forwards, padded right with zeros to `width`, in the rows' first order."""
    padded = [torch.nn.functional.pad(part, (0, width - part.size(1))) for part in parts]
    return torch.cat(padded)[torch.argsort(torch.cat(order))]
