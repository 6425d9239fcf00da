"""Our statistics against whileai 0.131 on the same rows: its users must read the same figures and verdicts."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import whileai.simulations as whileai

from shared.contracts.measuring import DeltaVerdict
from shared.delta import Side, TaskCounts, differences
from shared.replication import pooled, replicated_delta
from shared.statistics import bootstrap_mean, pass_at_k, pass_hat_k

K = 4
POINT = 1e-9
END = 0.01

Outcomes = list[list[int]]
"""0 or 1 by task and sample."""


def drawn(rates: Sequence[float], seed: int, k: int = K) -> Outcomes:
    draw = random.Random(seed)
    return [[int(draw.random() < rate) for _ in range(k)] for rate in rates]


def spread(mean: float, tasks: int, seed: int) -> list[float]:
    """Pass rates around a mean, most tasks either hard or easy: what an evaluation looks like."""
    draw = random.Random(seed)
    return [min(1.0, max(0.0, draw.betavariate(2 * mean, 2 * (1 - mean)))) for _ in range(tasks)]


def their_rows(outcomes: Outcomes, run: int | None = None, prompt_hash: str = "aa") -> list[dict[str, Any]]:
    lineage: dict[str, Any] = {"system_prompt_sha": prompt_hash} | ({} if run is None else {"eval_run": run})
    return [
        {"task_id": f"t{task:04}", "reward": hit, "lineage": lineage}
        for task, hits in enumerate(outcomes)
        for hit in hits
    ]


def our_counts(outcomes: Outcomes) -> dict[str, TaskCounts]:
    return {
        f"t{task:04}": TaskCounts(
            scored=len(hits), passed=sum(hits), no_sql=0, sql_error=0, rows=len(hits), cut=0, tokens=1.0
        )
        for task, hits in enumerate(outcomes)
    }


@pytest.mark.parametrize("seed", range(3))
def test_pass_at_1_pass_at_k_and_pass_hat_k_agree(seed: int) -> None:
    outcomes = drawn(spread(0.3 + 0.1 * seed, 150, seed), seed, k=8)
    theirs = whileai.pass_at(their_rows(outcomes), k=K)
    counted = [(len(hits), sum(hits)) for hits in outcomes]
    at_1 = bootstrap_mean([c / n for n, c in counted])
    at_k = bootstrap_mean([pass_at_k(n, c, K) for n, c in counted])
    hat_k = bootstrap_mean([pass_hat_k(n, c, K) for n, c in counted])
    for ours, value, ends in (
        (at_1, theirs.pass_at_1, theirs.ci95),
        (at_k, theirs.pass_at_k, theirs.pass_at_k_ci95),
        (hat_k, theirs.pass_pow_k, theirs.pass_pow_k_ci95),
    ):
        assert ours.value == pytest.approx(value, abs=POINT)
        assert (ours.low, ours.high) == pytest.approx(ends, abs=END)


@dataclass(frozen=True)
class Pair:
    """Two sides, one or more samplings each."""

    name: str
    before: list[Outcomes]
    after: list[Outcomes]
    verdict: DeltaVerdict
    """What both must say; whileai says `moved` for what we call `moved_replicated`."""
    prompts: tuple[str, str] = field(default=("aa", "aa"))


def pair(name: str, verdict: DeltaVerdict, low: float, high: float, tasks: int, runs: int, seed: int) -> Pair:
    """Every rate of the after side is moved towards 1 (or 0) so that the mean goes from `low` to `high`."""
    rates = spread(low, tasks, seed)
    scale = (high - low) / ((1 - low) if high > low else low)
    moved = [rate + scale * ((1 - rate) if high > low else rate) for rate in rates]
    return Pair(
        name,
        [drawn(rates, 100 * seed + run) for run in range(runs)],
        [drawn(moved, 100 * seed + 50 + run) for run in range(runs)],
        verdict,
    )


def swinging(name: str, gain: float, seed: int) -> Pair:
    """An evaluation that swings from run to run by more than the gain, for all tasks alike."""
    rates = spread(0.4, 250, seed)
    shifts = (-0.06, 0.06)
    sides = [
        [
            drawn([min(1.0, max(0.0, rate + shift + extra)) for rate in rates], seed + at)
            for at, shift in enumerate(shifts)
        ]
        for extra in (0.0, gain)
    ]
    return Pair(name, sides[0], sides[1], DeltaVerdict.WITHIN_EVAL_NOISE)


V = DeltaVerdict
PAIRS = [
    *(pair(f"large gain {seed}", V.MOVED, 0.35, 0.6, 150, 1, seed) for seed in range(3)),
    *(pair(f"large loss {seed}", V.MOVED_THE_WRONG_WAY, 0.6, 0.35, 150, 1, seed) for seed in range(3)),
    *(pair(f"the same policy {seed}", V.NO_CHANGE_DETECTED, 0.45, 0.45, 150, 1, seed) for seed in (2, 3, 5)),
    *(pair(f"replicated gain {seed}", V.MOVED_REPLICATED, 0.35, 0.6, 100, 3, seed) for seed in range(3)),
    *(pair(f"replicated loss {seed}", V.MOVED_THE_WRONG_WAY, 0.6, 0.35, 100, 3, seed) for seed in range(2)),
    *(swinging(f"a gain within the swing of the evaluation {seed}", 0.05, seed) for seed in (11, 23)),
    *(pair(f"two tasks {seed}", V.INSUFFICIENT_DATA, 0.2, 0.9, 2, 1, seed) for seed in range(2)),
    *(
        Pair(f"another prompt {seed}", [drawn([0.4] * 100, seed)], [drawn([0.6] * 100, seed + 9)], V.NOT_COMPARABLE, p)
        for seed, p in enumerate([("aa", "bb"), ("bb", "aa")])
    ),
]


def test_there_are_twenty_pairs_of_every_kind() -> None:
    assert len(PAIRS) == 20
    assert {p.verdict for p in PAIRS} == set(V) - {V.MOVED_UNREPLICATED}


def our_verdict(found: Pair) -> tuple[DeltaVerdict, Any]:
    sides = [
        Side(
            prompt_hash=p,
            task_set_digest="t",
            k=K,
            temperature=1,
            top_p=1,
            max_tokens=64,
            regime="",
            domain="shop",
            bundle_digest="d",
            profile="",
        )
        for p in found.prompts
    ]
    if differences(*sides):
        return V.NOT_COMPARABLE, None
    before, after = [our_counts(one) for one in found.before], [our_counts(one) for one in found.after]
    result = replicated_delta(before, after, K, seed=0)
    return result.verdict, result.lines[0].delta


def their_report(found: Pair) -> Any:
    many = len(found.before) > 1
    rows = [
        [row for run, one in enumerate(side) for row in their_rows(one, run if many else None, prompt)]
        for side, prompt in zip((found.before, found.after), found.prompts, strict=True)
    ]
    # One sampling a side has no repeats: whileai takes the evaluation's own noise as a number then, and ours computes
    # it from the draws.
    return whileai.delta_report(*rows, run_std=None if many else draw_noise(found))


def draw_noise(found: Pair) -> float:
    """Standard deviation of one sampling's mean: sqrt(sum p (1 - p) / (k - 1)) / tasks."""
    counts = pooled([our_counts(found.before[0]), our_counts(found.after[0])]).values()
    return float(sum(c.pass_rate * (1 - c.pass_rate) / (K - 1) for c in counts) ** 0.5 / len(counts))


@pytest.mark.slow
@pytest.mark.parametrize("found", PAIRS, ids=lambda found: found.name)
def test_the_same_pair_gets_the_same_verdict_value_and_interval(found: Pair) -> None:
    report = their_report(found)
    verdict, delta = our_verdict(found)
    assert verdict is found.verdict
    if verdict is V.NOT_COMPARABLE:
        assert report["not_comparable"] == ["prompt_hash"]
        return
    theirs = report["headline_verdict"]
    assert theirs == ("moved" if verdict is V.MOVED_REPLICATED else str(verdict))
    if verdict is not V.INSUFFICIENT_DATA:
        metric = report["metrics"]["pass_at_1"]
        assert delta.value == pytest.approx(metric["delta"], abs=POINT)
        assert (delta.low, delta.high) == pytest.approx(metric["ci95"], abs=END)
