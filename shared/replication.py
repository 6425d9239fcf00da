"""Several samplings a side: pooled into one delta, with the noise that the repeats themselves show. Pure."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shared.contracts.measuring import DeltaVerdict
from shared.delta import PairedResult, TaskCounts, paired_delta
from shared.statistics import t_two_sided_95

Samplings = Sequence[Mapping[str, TaskCounts]]
"""The repeats of one side, each by task id."""

REPLICATED = 2
"""Repeats that must show a move by themselves before it counts as replicated."""


def replicated_delta(before: Samplings, after: Samplings, k: int, seed: int) -> PairedResult:
    """`paired_delta` over the pooled counts of each side; needs a sampling a side.

    Repeats: sampling i before against sampling i after, or, with unequal numbers, each of the longer side against the
    other side pooled. Those share their other side, so they cannot replicate a move.
    """
    pooled_before, pooled_after = pooled(before), pooled(after)
    result = paired_delta(pooled_before, pooled_after, k, seed, measured_band(before, after))
    if len(before) == len(after):
        pairs = list(zip(before, after, strict=True))
    elif len(before) > len(after):
        pairs = [(one, pooled_after) for one in before]
    else:
        pairs = [(pooled_before, one) for one in after]
    if len(pairs) == 1:
        return result
    deltas = [paired_delta(one, other, k, seed).lines[0].delta for one, other in pairs]
    worse = result.verdict is DeltaVerdict.MOVED_THE_WRONG_WAY
    alone = sum(delta.high < 0 if worse else delta.low > 0 for delta in deltas)
    verdict = result.verdict
    if verdict is DeltaVerdict.MOVED:
        contrary = any(delta.high < 0 for delta in deltas)
        replicated = len(before) == len(after) and alone >= REPLICATED and not contrary
        verdict = DeltaVerdict.MOVED_REPLICATED if replicated else DeltaVerdict.MOVED_UNREPLICATED
    sentence = f"{result.sentence} {alone} of {len(pairs)} repeats show it by themselves."
    return replace(result, verdict=verdict, sentence=sentence, repeats=len(pairs), repeats_alone=alone)


def pooled(samplings: Samplings) -> dict[str, TaskCounts]:
    """Counts summed by task; token means weighted by rows."""
    found: dict[str, TaskCounts] = {}
    for sampling in samplings:
        for task_id, counts in sampling.items():
            found[task_id] = _add(found[task_id], counts) if task_id in found else counts
    return found


def _add(one: TaskCounts, other: TaskCounts) -> TaskCounts:
    rows = one.rows + other.rows
    return TaskCounts(
        scored=one.scored + other.scored,
        passed=one.passed + other.passed,
        no_sql=one.no_sql + other.no_sql,
        sql_error=one.sql_error + other.sql_error,
        rows=rows,
        cut=one.cut + other.cut,
        tokens=(one.tokens * one.rows + other.tokens * other.rows) / rows if rows else 0.0,
        slices=one.slices,
    )


def measured_band(before: Samplings, after: Samplings) -> float:
    """The |delta| of pooled means that the spread of the repeats alone would give in 95 % of cases.

    t(df) * s * sqrt(1/n + 1/m), s pooled over both sides' repeats with df = n + m - 2 (Welch's two-sample setting with
    equal variances: both sides are one evaluation, asked again). 0 unless both sides have repeats.
    """
    means = [
        [statistics.fmean(c.pass_rate for c in one.values() if c.scored) for one in side] for side in (before, after)
    ]
    if min(map(len, means)) < 2:
        return 0.0
    degrees = len(before) + len(after) - 2
    variance = sum(statistics.variance(side) * (len(side) - 1) for side in means) / degrees
    return t_two_sided_95(degrees) * math.sqrt(variance * (1 / len(before) + 1 / len(after)))
