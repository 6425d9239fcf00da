"""A batch's groups as TRL's rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.failures import RunFailed
from services.trainer.job.figures import batch_figures
from services.trainer.learning.rows import refuse_other_policy, refuse_unended, shuffled, to_rows
from shared.contracts.rollout import BatchGroup, BatchSample
from shared.contracts.verifier import FinishReason, Status

EOS = 2


def sample(index: int, ids: list[int], reward: float | None = 0.0, finish: str = "stop") -> BatchSample:
    return BatchSample(
        sample_index=index,
        completion_ids=ids,
        logprobs=[-0.5] * len(ids),
        reward=reward,
        status=Status.MISMATCH,
        finish_reason=FinishReason(finish),
        adapter_digest="base",
    )


def group(task_id: str, *samples: BatchSample) -> BatchGroup:
    return BatchGroup(task_id=task_id, prompt_ids=[10, 11], samples=list(samples))


def test_rows_stand_in_prompt_order_whatever_order_groups_and_samples_came_in() -> None:
    groups = {
        "b": group("b", sample(1, [4, EOS], 1.0), sample(0, [3, EOS], 0.1)),
        "a": group("a", sample(0, [5, EOS], 0.0), sample(1, [6, 7, EOS], 1.0)),
    }
    rows = to_rows(["a", "b"], 2, groups, EOS)
    assert rows.completion_ids == [[5, EOS], [6, 7, EOS], [3, EOS], [4, EOS]]
    assert rows.rewards == [0.0, 1.0, 0.1, 1.0]
    assert [len(logprobs) for logprobs in rows.logprobs] == [2, 3, 2, 2]
    assert rows.mask == [[1, 1], [1, 1, 1], [1, 1], [1, 1]]


def test_what_never_came_is_one_masked_end_token_without_reward() -> None:
    lost = BatchSample(
        sample_index=1,
        completion_ids=[],
        logprobs=[],
        reward=None,
        status=Status.UNSCORABLE,
        finish_reason=FinishReason.ABORT,
        adapter_digest="",
    )
    rows = to_rows(["a", "gone"], 3, {"a": group("a", sample(0, [5, EOS], 1.0), lost)}, EOS)
    assert rows.completion_ids == [[5, EOS]] + [[EOS]] * 5
    assert rows.rewards == [1.0] + [None] * 5
    assert rows.mask == [[1, 1]] + [[0]] * 5
    assert rows.lost == [False] + [True] * 5
    assert rows.prompt_ids == [[10, 11]] * 3 + [[EOS]] * 3, "a group that never came has no prompt: one filler token"


def test_an_unscorable_sample_keeps_its_tokens_but_none_counts() -> None:
    rows = to_rows(["a"], 2, {"a": group("a", sample(0, [5, 6, EOS], None), sample(1, [7], 0.0, "length"))}, EOS)
    assert rows.completion_ids[0] == [5, 6, EOS] and rows.mask[0] == [0, 0, 0]
    assert rows.truncated == [False, True]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"z": group("z")}, "not asked for"),
        ({"a": group("a", sample(2, [EOS]))}, "outside 0..1"),
        ({"a": group("a", sample(0, [EOS]), sample(0, [EOS]))}, "came twice"),
        ({"a": group("a", sample(0, [5, EOS]).model_copy(update={"logprobs": [-1.0]}))}, "2 token ids but 1 logprobs"),
    ],
)
def test_malformed_groups_end_the_run(groups: dict[str, BatchGroup], message: str) -> None:
    with pytest.raises(RunFailed, match=message):
        to_rows(["a"], 2, groups, EOS)


def test_samples_of_another_adapter_end_the_run() -> None:
    groups = {"a": group("a", sample(0, [EOS]))}
    refuse_other_policy(groups, "base")
    with pytest.raises(RunFailed, match="drawn by base, the policy in training is 0123"):
        refuse_other_policy(groups, "0123")


def test_a_finished_reply_without_its_end_token_ends_the_run() -> None:
    refuse_unended(to_rows(["a"], 2, {"a": group("a", sample(0, [5, EOS]), sample(1, [5], 0.0, "length"))}, EOS), [EOS])
    with pytest.raises(RunFailed, match="ends in token 5"):
        refuse_unended(to_rows(["a"], 1, {"a": group("a", sample(0, [5]))}, EOS), [EOS])


@given(st.lists(st.none() | st.floats(0, 1), max_size=30), st.integers(0, 9))
def test_shuffling_moves_rewards_but_keeps_what_is_unscorable(rewards: list[float | None], seed: int) -> None:
    result = shuffled(rewards, seed)
    assert [reward is None for reward in result] == [reward is None for reward in rewards]
    assert sorted(r for r in result if r is not None) == sorted(r for r in rewards if r is not None)
    assert result == shuffled(rewards, seed)


def test_shuffling_breaks_the_tie_between_reply_and_reward() -> None:
    rewards = [float(number) for number in range(50)]
    assert sum(a != b for a, b in zip(rewards, shuffled(rewards, 0), strict=True)) > 40


def test_figures_of_a_batch() -> None:
    groups = {
        "even": group("even", sample(0, [1, EOS], 1.0), sample(1, [1, 1, 1, EOS], 1.0)),
        "mixed": group("mixed", sample(0, [1, EOS], 0.0), sample(1, [1, 1, 1, 1], 1.0, "length")),
        "half": group("half", sample(0, [1, EOS], 0.1), sample(1, [1, EOS], None)),
    }
    rows = to_rows(["even", "mixed", "half", "gone"], 2, groups, EOS)
    figures = batch_figures(rows, rows.rewards, 2)
    assert figures.reward == pytest.approx(3.1 / 5)
    assert figures.reward_std == pytest.approx(0.5**0.5 / 4)
    assert figures.zero_variance == 0.75, "all equal, one scored, none scored"
    assert figures.completion_tokens == pytest.approx(16 / 6)
    assert figures.cut == pytest.approx(1 / 6)
    assert figures.unscorable == 3
