"""How the policy in training and the engine that sampled agree on a batch: sums over micro-batches, then means."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MAXIMUM_LOG_RATIO = 100.0
"""Nats beyond which a ratio is counted as e^100: larger ones would overflow, and the figure says enough."""


@dataclass(frozen=True)
class Agreement:
    """Over the tokens of one batch that the policy chose and that count."""

    logprob_gap: float
    """Mean |trainer - engine| in nats."""
    importance_ratio: float
    """Mean ratio trainer / engine before the cap."""
    effective_sample_size: float
    """Kish's (Σw)² / (n Σw²) of the capped ratios w: the share of the batch's tokens that still speaks."""
    kl: float
    """Mean KL to base per token (k3 estimate: e^d - d - 1, d = base - policy), over the share that was measured."""


class AgreementSums:
    """Adds micro-batches up."""

    def __init__(self) -> None:
        # tokens, |gap|, ratio, capped ratio, its square, tokens with a KL, KL
        self._sums = torch.zeros(7, dtype=torch.float64)

    def add(self, difference: Tensor, capped: Tensor) -> None:
        """`difference`: trainer - engine of each counted token in nats; `capped`: its importance weight."""
        difference, capped = difference.double(), capped.double()
        sums = (difference.abs().sum(), _ratio(difference).sum(), capped.sum(), capped.square().sum())
        self._sums[0] += difference.numel()
        self._sums[1:5] += torch.stack(sums).cpu()

    def add_kl(self, difference: Tensor) -> None:
        """`difference`: base - policy of each counted token in nats."""
        difference = difference.double()
        self._sums[5] += difference.numel()
        self._sums[6] += (_ratio(difference) - difference - 1).sum().item()

    def close(self, reduce: Callable[[Tensor], Tensor]) -> Agreement:
        """The batch's agreement; `reduce` sums over workers. Without a counted token: perfect."""
        tokens, gap, ratio, weight, square, measured, kl = reduce(self._sums).tolist()
        return Agreement(
            logprob_gap=gap / tokens if tokens else 0.0,
            importance_ratio=ratio / tokens if tokens else 1.0,
            effective_sample_size=weight**2 / (tokens * square) if tokens else 1.0,
            kl=kl / measured if measured else 0.0,
        )


def _ratio(difference: Tensor) -> Tensor:
    return difference.clamp(max=MAXIMUM_LOG_RATIO).exp()
