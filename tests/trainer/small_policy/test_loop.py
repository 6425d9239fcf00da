"""The pure parts: who is learned from, when it stops, what the verdicts add up to, the loss, the sampler."""

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.trainer.small_policy.examples import Example, batches, collate
from services.trainer.small_policy.generate import Draw, pick, sample
from services.trainer.small_policy.learner import reply_loss
from services.trainer.small_policy.measure import Asked, MeasureFailed, summarise
from services.trainer.small_policy.model import make_model
from services.trainer.small_policy.stopping import stop_reason
from services.trainer.small_policy.tasks import TasksUnusable, choose, policy_digest, tasks_digest
from shared.contracts.measuring import Estimate
from shared.contracts.policy import SliceMeasure, StopReason
from shared.contracts.tasks import PrivilegedTask, Split, Task
from shared.contracts.verifier import Status
from tests.trainer.small_policy.conftest import TINY

PAD, EOS = 0, 1
EXAMPLES = [
    Example([2, 7, 8, 9, 3], [10, 11, EOS]),
    Example([2, 7, 8, 3], [12, EOS]),
    Example([2, 7, 8, 5, 6, 3], [EOS]),
]


def measured(step: int, pass_1: float) -> SliceMeasure:
    estimate = Estimate(value=pass_1, low=pass_1, high=pass_1)
    return SliceMeasure(
        step=step, tasks=10, k=4, temperature=0.7, top_p=0.95, pass_1=estimate, pass_k=estimate, by_archetype={}
    )


def test_it_goes_on_until_pass_1_reaches_the_target() -> None:
    below, at = measured(25, 0.44), measured(50, 0.45)
    assert stop_reason([], 0.45, 100) is None
    assert stop_reason([below], 0.45, 100) is None
    assert stop_reason([below, at], 0.45, 100) is StopReason.TARGET
    assert stop_reason([at, below], 0.45, 100) is None  # only the last one is the policy as it stands


def test_it_ends_at_the_step_limit_and_says_so() -> None:
    assert stop_reason([measured(100, 0.44)], 0.45, 100) is StopReason.STEPS
    assert stop_reason([measured(100, 0.45)], 0.45, 100) is StopReason.TARGET


def test_it_learns_fold_0_and_measures_fold_1_of_train_only(tasks: list[PrivilegedTask]) -> None:
    chosen = choose(tasks, 10, seed=3)
    assert {(task.split, task.provenance.fold) for task in chosen.learn} == {(Split.TRAIN, 0)}
    assert {(task.split, task.provenance.fold) for task in chosen.measure} == {(Split.TRAIN, 1)}
    assert len(chosen.measure) == 10
    assert not {t.provenance.gold_key for t in chosen.learn} & {t.provenance.gold_key for t in chosen.measure}
    assert choose(list(reversed(tasks)), 10, seed=3) == chosen
    assert choose(tasks, 10, seed=4).measure != chosen.measure


def test_tasks_without_golds_are_refused(tasks: list[PrivilegedTask]) -> None:
    bare = [Task.model_validate(task.model_dump(exclude={"privileged"})) for task in tasks]
    with pytest.raises(TasksUnusable, match="`gold` scope"):
        choose(bare, 10, seed=0)


def test_too_few_tasks_are_refused_with_their_number(tasks: list[PrivilegedTask]) -> None:
    holdout = [task for task in tasks if task.split is Split.HOLDOUT]
    with pytest.raises(TasksUnusable, match="0 train tasks"):
        choose(holdout, 10, seed=0)


def test_the_digest_changes_with_everything_that_makes_a_policy(tasks: list[PrivilegedTask]) -> None:
    chosen = choose(tasks, 10, seed=0)
    fewer = choose(tasks[:-5], 10, seed=0)
    other = TINY.model_copy(update={"learning_rate": 1e-4})
    digests = {
        policy_digest(chosen, "a" * 64, TINY, 0),
        policy_digest(fewer, "a" * 64, TINY, 0),
        policy_digest(chosen, "b" * 64, TINY, 0),
        policy_digest(chosen, "a" * 64, other, 0),
        policy_digest(chosen, "a" * 64, TINY, 1),
    }
    assert len(digests) == 5
    assert tasks_digest(list(reversed(chosen.learn))) == tasks_digest(chosen.learn)


def test_unscorable_replies_leave_the_pass_rate(tasks: list[PrivilegedTask]) -> None:
    slice_ = [Asked(task, [1]) for task in tasks[:3]]
    match, wrong, lost = Status.MATCH, Status.MISMATCH, Status.UNSCORABLE
    found = summarise(slice_, [[match, lost], [match, wrong], [lost, lost]], TINY, step=5)
    assert (found.tasks, found.pass_1.value, found.pass_k.value) == (2, 0.75, 1.0)
    assert found.by_archetype == {"filter": 0.75}


def test_a_verifier_that_scores_nothing_is_a_failure_not_a_zero(tasks: list[PrivilegedTask]) -> None:
    with pytest.raises(MeasureFailed, match="scored none of 1 tasks"):
        summarise([Asked(tasks[0], [1])], [[Status.UNSCORABLE]], TINY, step=5)


def test_every_example_is_seen_once_an_epoch() -> None:
    source = batches(lambda rng: EXAMPLES, 2, PAD, Random(0))
    labels = [label for _ in range(2) for row in next(source).labels.tolist() for label in row if label >= 0]
    assert sorted(labels) == sorted(token for example in EXAMPLES for token in example.reply)


def test_padding_and_prompts_carry_no_loss() -> None:
    model = make_model(TINY.architecture, 20, 64, PAD, EOS, seed=0)
    together = reply_loss(model, collate(EXAMPLES, PAD))
    tokens = [len(example.reply) for example in EXAMPLES]
    alone = [
        reply_loss(model, collate([example], PAD)) * count for example, count in zip(EXAMPLES, tokens, strict=True)
    ]
    torch.testing.assert_close(together, torch.stack(alone).sum() / sum(tokens))


@given(st.integers(0, 5), st.floats(0.05, 0.99))
@settings(deadline=None, max_examples=30)
def test_the_nucleus_holds_the_fewest_tokens_that_reach_top_p(seed: int, top_p: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, 8, generator=generator)
    ordered, index = torch.softmax(logits[0], -1).sort(descending=True)
    size = int((ordered.cumsum(0) < top_p).sum()) + 1
    allowed = set(index[:size].tolist())
    assert {int(pick(logits, Draw(1.0, top_p, 1), generator)) for _ in range(100)} <= allowed


def test_near_zero_temperature_is_greedy_for_prompts_of_unequal_length() -> None:
    """Against one uncached forward at a time: padding, positions and the removal of finished rows change nothing."""
    model = make_model(TINY.architecture, 20, 64, PAD, EOS, seed=1)
    model.eval()
    prompts = [[2, 7, 8, 9, 3], [2, 3], [2, 5, 5, 5, 5, 5, 3]]
    draw = Draw(1e-6, 1.0, 30)
    found = sample(model, prompts, 2, draw, PAD, EOS, torch.Generator().manual_seed(0))
    for prompt, replies in zip(prompts, found, strict=True):
        ids = list(prompt)
        with torch.inference_mode():
            while len(ids) < len(prompt) + draw.max_tokens:
                token = int(model(torch.tensor([ids])).logits[0, -1].argmax())
                if token == EOS:
                    break
                ids.append(token)
        assert replies == [ids[len(prompt) :]] * 2


def test_equal_seeds_sample_equal_replies() -> None:
    model = make_model(TINY.architecture, 20, 64, PAD, EOS, seed=1)
    draws = [
        sample(model, [[2, 3], [2, 4, 3]], 3, Draw(1.0, 1.0, 40), PAD, EOS, torch.Generator().manual_seed(seed))
        for seed in (5, 5, 6)
    ]
    assert draws[0] == draws[1] != draws[2]
    assert len({len(reply) for group in draws[0] for reply in group}) > 1  # some rows finished before others
