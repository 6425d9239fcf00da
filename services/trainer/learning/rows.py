"""A batch's groups as the flat rows TRL expects: group by group in prompt order, k rows each, none missing."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.trainer.failures import RunFailed
from shared.contracts.rollout import BatchGroup, BatchSample
from shared.contracts.verifier import FinishReason

REWARD_COLUMN = "execution_reward"
"""Name under which rewards travel from the rollout function to the reward function."""


@dataclass(frozen=True)
class Rows:
    """`prompts x k` rows in prompt order. Row `g * k + s` is sample `s` of prompt `g`."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[list[float]]
    """The engine's, natural log, one per completion id."""
    mask: list[list[int]]
    """1 where the policy chose the token and its reward is known, else 0."""
    rewards: list[float | None]
    """None: unscorable, outside the group's baseline."""
    truncated: list[bool]
    """Stopped by the token budget."""
    lost: list[bool]
    """The sample never came: its one token is a filler."""


def to_rows(task_ids: Sequence[str], k: int, groups: Mapping[str, BatchGroup], filler_id: int) -> Rows:
    """Rows of one step. A missing sample is the one token `filler_id` (the EOS id), masked, without reward.

    Raises RunFailed for groups nobody asked for, sample indices outside 0..k-1 or twice, or ids and logprobs of
    unequal length.
    """
    unknown = sorted(groups.keys() - set(task_ids))
    if unknown:
        raise RunFailed(f"the rollout service answered groups that were not asked for: {unknown[:3]}")
    rows = Rows([], [], [], [], [], [], [])
    for task_id in task_ids:
        group = groups.get(task_id)
        prompt_ids = group.prompt_ids if group and group.prompt_ids else [filler_id]
        for sample in _ordered(task_id, k, group):
            came = sample is not None and bool(sample.completion_ids)
            rows.prompt_ids.append(prompt_ids)
            rows.completion_ids.append(sample.completion_ids if sample and came else [filler_id])
            rows.logprobs.append(sample.logprobs if sample and came else [0.0])
            rows.rewards.append(sample.reward if sample and came else None)
            rows.mask.append([0 if rows.rewards[-1] is None else 1] * len(rows.completion_ids[-1]))
            rows.truncated.append(sample is not None and came and sample.finish_reason is FinishReason.LENGTH)
            rows.lost.append(not came)
    return rows


def _ordered(task_id: str, k: int, group: BatchGroup | None) -> list[BatchSample | None]:
    samples: list[BatchSample | None] = [None] * k
    for sample in group.samples if group else []:
        if not 0 <= sample.sample_index < k or samples[sample.sample_index] is not None:
            raise RunFailed(f"task {task_id}: sample index {sample.sample_index} is outside 0..{k - 1} or came twice")
        if len(sample.completion_ids) != len(sample.logprobs):
            raise RunFailed(
                f"task {task_id}, sample {sample.sample_index}: {len(sample.completion_ids)} token ids but "
                f"{len(sample.logprobs)} logprobs; the importance correction needs one each"
            )
        samples[sample.sample_index] = sample
    return samples


def refuse_other_policy(groups: Mapping[str, BatchGroup], digest: str) -> None:
    """Raises RunFailed unless every sample that came was drawn by the adapter `digest` (or `base`)."""
    for group in groups.values():
        for sample in group.samples:
            if sample.completion_ids and sample.adapter_digest != digest:
                raise RunFailed(
                    f"a sample of task {group.task_id} was drawn by {sample.adapter_digest[:12]}, the policy in "
                    f"training is {digest[:12]}. Nothing was learnt from this batch; every step before it is kept"
                )


def refuse_unended(rows: Rows, end_ids: Sequence[int]) -> None:
    """Raises RunFailed when a reply that ended by itself does not end in one of the model's end-of-turn ids.

    TRL reads "truncated" off the last id: such replies would all be masked, and the run would learn nothing.
    """
    for ids, truncated, lost in zip(rows.completion_ids, rows.truncated, rows.lost, strict=True):
        if not truncated and not lost and ids[-1] not in end_ids:
            raise RunFailed(
                f"a finished reply ends in token {ids[-1]}, the model's end-of-turn ids are {sorted(end_ids)}: "
                "the engine must keep the end-of-turn id and stop on the ids of the model's generation_config"
            )


def shuffled(rewards: Sequence[float | None], seed: int) -> list[float | None]:
    """The rewards of scored rows in a random order (the control run); unscorable rows stay where they are."""
    scored = [index for index, reward in enumerate(rewards) if reward is not None]
    sources = random.Random(seed).sample(scored, len(scored))
    result = list(rewards)
    for target, source in zip(scored, sources, strict=True):
        result[target] = rewards[source]
    return result
