"""Paired deltas: two samplings of the same tasks, task by task. Pure; the rules are the design's section 9."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shared.contracts.measuring import DeltaLine, DeltaVerdict, Estimate
from shared.statistics import (
    Z_TWO_SIDED_95,
    bootstrap_mean,
    detectable_effect,
    pass_at_k,
    pass_hat_k,
    sign_flip_p,
)

MINIMUM_TASKS = 6
"""Fewest pairs that can be read: with 5, even all moving one way has a two-sided sign-test p of 0.0625."""

CEILING_HEADROOM = 0.02
"""pass@1 this close to pass@k: the policy does nearly all it can do at all."""

FLIP = 0.5
"""A task has flipped when its pass rate changed by half or more."""


@dataclass(frozen=True)
class TaskCounts:
    """One task's rows in one sampling. Rates are over scored rows; an unscorable row is never a failure."""

    scored: int
    passed: int
    no_sql: int
    sql_error: int
    rows: int
    cut: int
    tokens: float
    """Mean reply tokens over all rows."""
    slices: tuple[str, ...] = ()
    """`difficulty=easy`, `archetype=window`, `style=terse`."""

    @property
    def pass_rate(self) -> float:
        """passed / scored; needs scored >= 1."""
        return self.passed / self.scored


@dataclass(frozen=True)
class Side:
    """What must be equal on both sides for a delta to mean anything."""

    prompt_hash: str
    task_set_digest: str
    k: int
    temperature: float
    top_p: float
    max_tokens: int
    regime: str
    domain: str
    bundle_digest: str
    profile: str


@dataclass(frozen=True)
class PairedResult:
    """A delta without its names."""

    verdict: DeltaVerdict
    sentence: str
    detectable_effect: float
    lines: list[DeltaLine]
    gained: list[str]
    lost: list[str]
    repeats: int = 1
    """Pairs of samplings that were compared each by itself."""

    repeats_alone: int = 0
    """Of those, how many show the verdict's direction with an interval that excludes 0; 0 for one pair."""


def differences(before: Side, after: Side) -> list[str]:
    """Why two sides are not comparable; empty when they are."""
    return [
        f"{name}: {old} before, {new} after"
        for name in Side.__dataclass_fields__
        if (old := getattr(before, name)) != (new := getattr(after, name))
    ]


Metric = Callable[[TaskCounts, int], float | None]


def _full(count: Callable[[int, int, int], float]) -> Metric:
    return lambda task, k: count(task.scored, task.passed, k) if task.scored >= k else None


METRICS: dict[str, Metric] = {
    "pass@1": lambda task, k: task.pass_rate,
    "pass@k": _full(pass_at_k),
    "pass^k": _full(pass_hat_k),
    "no_sql": lambda task, k: task.no_sql / task.scored,
    "sql_error": lambda task, k: task.sql_error / task.scored,
    "cut": lambda task, k: task.cut / task.rows,
    "tokens": lambda task, k: task.tokens,
}


def paired_delta(
    before: Mapping[str, TaskCounts],
    after: Mapping[str, TaskCounts],
    k: int,
    seed: int,
    measured_band: float = 0.0,
) -> PairedResult:
    """Pair two comparable sides by task id; tasks without a scored row on a side leave the comparison.

    `measured_band`: a change that repeats of one side were seen to differ by, which a move has to exceed as well.
    """
    pairs = [
        (task_id, before[task_id], after[task_id])
        for task_id in sorted(before.keys() & after.keys())
        if before[task_id].scored and after[task_id].scored
    ]
    lines = [line for name in METRICS if (line := _line("all", name, pairs, k, seed)) is not None]
    for name in sorted({name for _, task, _ in pairs for name in task.slices}):
        part = [pair for pair in pairs if name in pair[1].slices]
        if (line := _line(name, "pass@1", part, k, seed)) is not None:
            lines.append(line)
    changes = np.array([new.pass_rate - old.pass_rate for _, old, new in pairs])
    deviation = float(changes.std(ddof=1)) if len(pairs) > 1 else 1.0
    verdict = _verdict(lines, max(rerun_band(pairs), measured_band), len(pairs))
    return PairedResult(
        verdict=verdict,
        sentence=_sentence(verdict, {line.metric: line for line in reversed(lines) if line.slice == "all"}, k),
        detectable_effect=min(1.0, detectable_effect(deviation, len(pairs))),
        lines=lines,
        gained=[task_id for task_id, old, new in pairs if new.pass_rate - old.pass_rate >= FLIP],
        lost=[task_id for task_id, old, new in pairs if old.pass_rate - new.pass_rate >= FLIP],
    )


Pairs = Sequence[tuple[str, TaskCounts, TaskCounts]]


def _line(slice_name: str, metric: str, pairs: Pairs, k: int, seed: int) -> DeltaLine | None:
    values = [(METRICS[metric](old, k), METRICS[metric](new, k)) for _, old, new in pairs]
    known = np.array([(old, new) for old, new in values if old is not None and new is not None])
    if known.size == 0:
        return None
    changes = known[:, 1] - known[:, 0]
    return DeltaLine(
        slice=slice_name,
        metric=metric,
        tasks=len(known),
        before=float(known[:, 0].mean()),
        after=float(known[:, 1].mean()),
        delta=bootstrap_mean(changes, seed),
        p_value=sign_flip_p(changes, seed),
    )


def rerun_band(pairs: Pairs) -> float:
    """Largest |delta| that asking an unchanged policy twice gives in 95 % of pairs of samplings.

    From the sampling noise of the pairs' own pass rates: the variance of a task's difference is p (1 - p) over the
    draws of either side, each less one, which makes the estimate of p (1 - p) from n draws unbiased.
    """
    variances = [
        rate * (1.0 - rate) * (1.0 / max(1, old.scored - 1) + 1.0 / max(1, new.scored - 1))
        for _, old, new in pairs
        for rate in [(old.pass_rate + new.pass_rate) / 2]
    ]
    return float(Z_TWO_SIDED_95 * sum(variances) ** 0.5 / len(pairs)) if pairs else 0.0


def _verdict(lines: Sequence[DeltaLine], noise_band: float, tasks: int) -> DeltaVerdict:
    """The reading of overall pass@1.

    An interval that holds 0 is `no_change_detected`. One that excludes it is `within_eval_noise` when the change is no
    larger than asking the same policy again gives (`noise_band`): the interval is over these tasks, the band is over
    draws of replies, and a move has to clear both. Else it moved, one way or the other.
    """
    if tasks < MINIMUM_TASKS:
        return DeltaVerdict.INSUFFICIENT_DATA
    delta = lines[0].delta
    if delta.low <= 0.0 <= delta.high:
        return DeltaVerdict.NO_CHANGE_DETECTED
    if abs(delta.value) <= noise_band:
        return DeltaVerdict.WITHIN_EVAL_NOISE
    return DeltaVerdict.MOVED if delta.value > 0 else DeltaVerdict.MOVED_THE_WRONG_WAY


def _sentence(verdict: DeltaVerdict, overall: Mapping[str, DeltaLine], k: int) -> str:
    if verdict is DeltaVerdict.INSUFFICIENT_DATA:
        return f"Fewer than {MINIMUM_TASKS} tasks were scored on both sides: nothing can be said."
    once = overall["pass@1"]
    change = f"pass@1 went from {once.before:.3f} to {once.after:.3f} ({_signed(once.delta)})"
    if verdict is DeltaVerdict.NO_CHANGE_DETECTED:
        return f"No change detected: {change}; the interval holds 0."
    if verdict is DeltaVerdict.WITHIN_EVAL_NOISE:
        return f"Within evaluation noise: {change}, no more than asking the same policy again gives."
    if verdict is DeltaVerdict.MOVED_THE_WRONG_WAY:
        return f"Worse: {change}."
    return f"{_kind_of_gain(overall, k)}: {change}."


def _kind_of_gain(overall: Mapping[str, DeltaLine], k: int) -> str:
    """More capable: it solves tasks it could not. More reliable: it solves the same ones more often."""
    if k < 2 or "pass@k" not in overall:
        return "Better"
    at_k = overall["pass@k"]
    ceiling = ", and at its ceiling" if at_k.after - overall["pass@1"].after <= CEILING_HEADROOM else ""
    if at_k.delta.low > 0:
        return f"More capable{ceiling} (pass@{k} {_signed(at_k.delta)})"
    return f"More reliable, not more capable{ceiling} (pass@{k} {_signed(at_k.delta)})"


def _signed(delta: Estimate) -> str:
    return f"{delta.value:+.3f} [{delta.low:+.3f}, {delta.high:+.3f}]"
