"""What a step's replies say of the policy and of the engine: plain arithmetic over the groups that came."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from shared.contracts.rollout import BatchGroup
from shared.contracts.verifier import Status


@dataclass(frozen=True)
class ReplyFigures:
    """Shares over a step's samples."""

    matched: float
    """Of scored samples: verdict `match`."""
    no_sql: float
    """Of scored samples: no statement in the reply."""
    extra_turns: float
    """Of the samples that came: text after the first end of turn, which no policy in training may have."""


def reply_figures(groups: Iterable[BatchGroup], end_ids: Collection[int]) -> ReplyFigures:
    """Figures of all samples of `groups`; `end_ids` are the model's end-of-turn ids. Shares of nothing are 0."""
    samples = [sample for group in groups for sample in group.samples]
    came = [sample.completion_ids for sample in samples if sample.completion_ids]
    scored = [sample.status for sample in samples if sample.reward is not None]
    return ReplyFigures(
        matched=_share(status is Status.MATCH for status in scored),
        no_sql=_share(status is Status.NO_SQL for status in scored),
        extra_turns=_share(any(token in end_ids for token in ids[:-1]) for ids in came),
    )


def teaches(group: BatchGroup | None) -> bool:
    """Whether a group has an advantage to learn from: two scored samples whose rewards differ."""
    return group is not None and len({sample.reward for sample in group.samples if sample.reward is not None}) > 1


def _share(hits: Iterable[bool]) -> float:
    counted = list(hits)
    return sum(counted) / len(counted) if counted else 0.0
