"""The guards: each one rule over what a run has measured, with its metric, its bound and what to do when it fires.

Every rule is a lesson of the recipe this project replaces. A rule sees logged steps and measured checkpoints only, and
says nothing while it has too little to go by.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shared.contracts.measuring import ReportLine
from shared.contracts.run_config import GuardAction, GuardName
from shared.contracts.trainer import CurvePoint, Step

HEADROOM_LIMIT = 0.10
ZERO_VARIANCE_LIMIT = 0.5
ZERO_VARIANCE_STEPS = (3, 5)
"""Judged on the mean of the first steps, from the third to the fifth: later a better policy has more such groups."""
SYNC_LIMIT = 0.1
"""Nats a token. bfloat16 kernels give about 0.02, one update's staleness less; other limits or weights more."""
SERVED_LIMIT = 0.3
TRUNCATION_LIMIT = 0.25
BUDGET_LIMIT = 0.05
EXTRA_TURNS_LIMIT = 0.01
UNSCORABLE_LIMIT = 0.3
NO_SQL_LIMIT = 0.25
RECENT_STEPS = 3
"""Shares are judged on the mean of so many steps: one batch is noisy."""

STALLED_STEPS = 10
"""Two windows of so many steps are compared."""
STALLED_REWARD = 0.01
STALLED_KL = 0.1
"""Relative change of the mean KL to base between the two windows below which the policy has stopped."""
KL_FLOOR = 1e-5
"""Nats a token: a KL that changes by less has not moved, whatever its relative change."""

TRAINING_GAIN = 0.05
"""Training reward, last steps less first, from which the holdout has to show something."""
HOLDOUT_SHARE = 0.5
"""Of training's gain that the holdout may at least have gained, as far as its interval tells."""
SATURATED_GAIN = 0.01


@dataclass(frozen=True)
class Evidence:
    """What there is to go by."""

    steps: Sequence[Step]
    """Logged steps, in order."""
    curve: Sequence[CurvePoint] = ()
    """Measured checkpoints, by step."""
    band: ReportLine | None = None
    """All tasks of the sampling that the band was cut from."""
    memory_bytes: tuple[float, float] | None = None
    """(needed, available) of the tightest device."""


@dataclass(frozen=True)
class Reading:
    """A guard's metric and its bound."""

    value: float
    limit: float


@dataclass(frozen=True)
class Guard:
    """One rule. `judge` answers a reading when the guard fires, else None."""

    metric: str
    action: GuardAction
    advice: str
    """What it means and what to do, in one sentence."""
    judge: Callable[[Evidence], Reading | None]

    def message(self, name: GuardName, reading: Reading) -> str:
        """What a person reads."""
        return f"guard `{name}`: {self.metric} is {reading.value:.3g}, the bound is {reading.limit:.3g}. {self.advice}"


def _above(value: float | None, limit: float) -> Reading | None:
    return Reading(value, limit) if value is not None and value > limit else None


def _recent(evidence: Evidence, metric: Callable[[Step], float]) -> float | None:
    steps = evidence.steps[-RECENT_STEPS:]
    return statistics.fmean(map(metric, steps)) if len(steps) == RECENT_STEPS else None


def _headroom(evidence: Evidence) -> Reading | None:
    if evidence.band is None or evidence.band.headroom >= HEADROOM_LIMIT:
        return None
    return Reading(evidence.band.headroom, HEADROOM_LIMIT)


def _zero_variance(evidence: Evidence) -> Reading | None:
    low, high = ZERO_VARIANCE_STEPS
    if not low <= len(evidence.steps) <= high:
        return None
    return _above(statistics.fmean(step.zero_variance for step in evidence.steps), ZERO_VARIANCE_LIMIT)


def _sync(evidence: Evidence) -> Reading | None:
    return _above(evidence.steps[-1].logprob_gap, SYNC_LIMIT) if evidence.steps else None


def _served(evidence: Evidence) -> Reading | None:
    served = [point for point in evidence.curve if point.kind == "trained" and point.pass_at_1 is not None]
    if not served or served[-1].pass_at_1 is None:
        return None
    point, score = served[-1], served[-1].pass_at_1
    training = [step.matched for step in evidence.steps if point.step - RECENT_STEPS < step.step <= point.step]
    return _above(abs(statistics.fmean(training) - score), SERVED_LIMIT) if training else None


def _budget(evidence: Evidence) -> Reading | None:
    return _above(_recent(evidence, lambda step: step.lost.get("timeout", 0) / max(1, step.samples)), BUDGET_LIMIT)


def _unscorable(evidence: Evidence) -> Reading | None:
    return _above(_recent(evidence, lambda step: step.unscorable / max(1, step.samples)), UNSCORABLE_LIMIT)


def _rise(before: Sequence[Step], after: Sequence[Step]) -> tuple[float, float]:
    """Reward of one window of steps less that of an earlier one, and the standard error of that difference."""
    rewards = [[step.reward for step in window] for window in (before, after)]
    error = math.sqrt(sum(statistics.variance(window) / len(window) for window in rewards))
    return statistics.fmean(rewards[1]) - statistics.fmean(rewards[0]), error


def _stalled(evidence: Evidence) -> Reading | None:
    if len(evidence.steps) < 2 * STALLED_STEPS:
        return None
    before, after = evidence.steps[-2 * STALLED_STEPS : -STALLED_STEPS], evidence.steps[-STALLED_STEPS:]
    rise, error = _rise(before, after)
    kl = [statistics.fmean(step.kl or 0.0 for step in window) for window in (before, after)]
    bound = max(STALLED_REWARD, error)
    if rise > bound or abs(kl[1] - kl[0]) > max(KL_FLOOR, STALLED_KL * kl[0]):
        return None
    return Reading(rise, bound)


def _holdout(evidence: Evidence) -> list[CurvePoint]:
    return [point for point in evidence.curve if point.kind == "holdout" and point.pass_at_1 is not None]


def _generalization(evidence: Evidence) -> Reading | None:
    scores = [point.pass_at_1 or 0.0 for point in _holdout(evidence)]
    if len(scores) < 3 or len(evidence.steps) < 2 * RECENT_STEPS:  # the start, and two checkpoints that agree
        return None
    learnt, error = _rise(evidence.steps[:RECENT_STEPS], evidence.steps[-RECENT_STEPS:])
    # at the upper end of its interval: a small holdout that cannot tell says nothing
    gain = max(point.high or 0.0 for point in _holdout(evidence)[-2:]) - scores[0]
    bound = HOLDOUT_SHARE * learnt
    return Reading(gain, bound) if learnt > max(TRAINING_GAIN, 2 * error) and gain < bound else None


def _saturated(evidence: Evidence) -> Reading | None:
    points = _holdout(evidence)
    scores = [point.pass_at_1 or 0.0 for point in points]
    if len(scores) < 4:
        return None
    best = max(points, key=lambda point: point.pass_at_1 or 0.0)
    climbed = best.low is not None and best.low > scores[0]  # else it is stalled, not saturated
    gain = max(scores[-2:]) - max(scores[:-2])
    return Reading(gain, SATURATED_GAIN) if climbed and gain < SATURATED_GAIN else None


def _memory(evidence: Evidence) -> Reading | None:
    return _above(evidence.memory_bytes[0] / 2**30, evidence.memory_bytes[1] / 2**30) if evidence.memory_bytes else None


GUARDS: Mapping[GuardName, Guard] = {
    GuardName.HEADROOM: Guard(
        "pass@k - pass@1 of the policy on the band's tasks",
        GuardAction.WARN,
        "RL has little to amplify: warm up with `train --method sft`, or author harder tasks that it sometimes solves",
        _headroom,
    ),
    GuardName.MEMORY: Guard(
        "the estimate in GiB",
        GuardAction.STOP,
        "It would run out of memory: lower `max_tokens` or `lora.rank`, or take a preset with more GPUs; "
        "`sqlclimb train --plan` shows what needs how much",
        _memory,
    ),
    GuardName.ZERO_VARIANCE: Guard(
        "the share of groups that teach nothing, over the first steps",
        GuardAction.STOP,
        "The band was cut on another policy or under other limits: sample the train split with this policy and cut it "
        "again with `sqlclimb band`",
        _zero_variance,
    ),
    GuardName.SYNC: Guard(
        "the log-probability gap between trainer and engine in nats a token",
        GuardAction.STOP,
        "The policy sampled is not the policy trained: compare the served adapter, `--logprobs-mode "
        "processed_logprobs`, the sampling limits and the chat template of engine and trainer",
        _sync,
    ),
    GuardName.SERVED: Guard(
        "the distance between the score of the served adapter on prompts it trained on and its score in training",
        GuardAction.STOP,
        "This is a serving bug, not a learning one: run `sqlclimb adapters verify` before any conclusion",
        _served,
    ),
    GuardName.TRUNCATION: Guard(
        "the share of replies that the token budget cuts",
        GuardAction.WARN,
        "What is cut is masked and teaches nothing: raise `max_tokens`, at least to evaluation's",
        lambda evidence: _above(_recent(evidence, lambda step: step.cut), TRUNCATION_LIMIT),
    ),
    GuardName.BUDGET: Guard(
        "the share of samples lost to their deadline",
        GuardAction.WARN,
        "A request may take max(300 s, max_tokens / 4 tokens a second): give the engine more replicas or fewer groups "
        "in flight, or lower `max_tokens`",
        _budget,
    ),
    GuardName.FIRST_REPLY: Guard(
        "the share of replies that go on after their end of turn",
        GuardAction.STOP,
        "A row must hold one assistant turn: let the engine stop on the end-of-turn ids of the model's "
        "generation_config",
        lambda evidence: _above(evidence.steps[-1].extra_turns if evidence.steps else None, EXTRA_TURNS_LIMIT),
    ),
    GuardName.UNSCORABLE: Guard(
        "the share of samples without a verdict",
        GuardAction.STOP,
        "The verifier or the engine fails: see `sqlclimb status` and their logs, then resume the run",
        _unscorable,
    ),
    GuardName.STALLED: Guard(
        "the rise of reward over the last windows, with a flat KL,",
        GuardAction.WARN,
        "The policy has stopped: raise the learning rate or the samples a step, or cut the band again",
        _stalled,
    ),
    GuardName.GENERALIZATION: Guard(
        "the holdout's gain at most, while training reward rose by twice the bound,",
        GuardAction.WARN,
        "The band is too small or passed over too often: author more tasks, cut a wider band, or stop earlier",
        _generalization,
    ),
    GuardName.SATURATED: Guard(
        "the gain of the two newest checkpoints over the best before them",
        GuardAction.WARN,
        "More steps on this band bring nothing: stop, keep the best checkpoint, and cut a new band on it for the next "
        "round",
        _saturated,
    ),
    GuardName.NO_SQL: Guard(
        "the share of replies without a statement",
        GuardAction.WARN,
        "The policy answers in prose: check the prompt's rules, the reply budget and whether thinking is on as in the "
        "band",
        lambda evidence: _above(_recent(evidence, lambda step: step.no_sql), NO_SQL_LIMIT),
    ),
}


@dataclass(frozen=True)
class Finding:
    """A guard that fired."""

    name: GuardName
    action: GuardAction
    reading: Reading
    message: str


def findings(evidence: Evidence, chosen: Mapping[GuardName, GuardAction]) -> list[Finding]:
    """Every guard that fires and is not off; `chosen` overrides the guards' own actions."""
    found = []
    for name, guard in GUARDS.items():
        action = chosen.get(name, guard.action)
        if action is not GuardAction.OFF and (reading := guard.judge(evidence)):
            found.append(Finding(name, action, reading, guard.message(name, reading)))
    return found
