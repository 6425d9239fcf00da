"""What one batch says of itself: plain arithmetic over its rows."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from services.trainer.learning.rows import Rows


@dataclass(frozen=True)
class BatchFigures:
    """Figures of one step's samples."""

    reward: float
    """Mean over scored samples."""
    reward_std: float
    """Mean over groups of the standard deviation (n - 1) of their scored rewards."""
    zero_variance: float
    """Share of groups that teach nothing: all scored rewards equal, or fewer than two."""
    completion_tokens: float
    """Mean length of the samples that came."""
    cut: float
    """Share of the samples that came which the token budget stopped."""
    unscorable: int
    """Samples without a reward."""


def batch_figures(rows: Rows, rewards: Sequence[float | None], k: int) -> BatchFigures:
    """Figures of `rows` under the rewards the learner sees. Without any scored sample the means are 0."""
    scored = [reward for reward in rewards if reward is not None]
    groups = [[r for r in rewards[i : i + k] if r is not None] for i in range(0, len(rewards), k)]
    deviations = [statistics.stdev(group) if len(group) > 1 else 0.0 for group in groups]
    lengths = [len(ids) for ids, lost in zip(rows.completion_ids, rows.lost, strict=True) if not lost]
    return BatchFigures(
        reward=statistics.fmean(scored) if scored else 0.0,
        reward_std=statistics.fmean(deviations),
        zero_variance=sum(deviation == 0.0 for deviation in deviations) / len(groups),
        completion_tokens=statistics.fmean(lengths) if lengths else 0.0,
        cut=sum(rows.truncated) / len(lengths) if lengths else 0.0,
        unscorable=len(rewards) - len(scored),
    )
