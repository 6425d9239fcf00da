"""The `served` guard: an adapter asked the prompts it trained on must earn what the trainer saw. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

PROMPTS = 100
"""Trained prompts that are asked again: their mean reward is known to about 0.05."""

GAP = 0.3
"""Reward below the trainer's own that only a serving fault explains: the recipe's silent no-op read 0.2 to 0.3 low."""

Rewards = Mapping[str, Sequence[float]]
"""Task id to the rewards of its scored samples."""


@dataclass(frozen=True)
class Comparison:
    """Over the tasks that both sides scored."""

    tasks: int
    trained: float
    """Mean over tasks of the trainer's mean reward."""
    served: float

    @property
    def gap(self) -> float:
        """How much less the served adapter earns."""
        return self.trained - self.served

    @property
    def holds(self) -> bool:
        """False when what serves is not what trained."""
        return self.gap < GAP


def compare(trained: Rewards, served: Rewards) -> Comparison:
    """Raises ValueError when no task was scored on both sides."""
    both = sorted(task for task, rewards in trained.items() if rewards and served.get(task))
    if not both:
        raise ValueError("no prompt was scored both in training and now")
    return Comparison(
        len(both), fmean(fmean(trained[task]) for task in both), fmean(fmean(served[task]) for task in both)
    )
