"""Repeats of a measurement: what replicates a move, and what does not."""

import random

import pytest

from shared.contracts.measuring import DeltaVerdict
from shared.delta import TaskCounts
from shared.replication import measured_band, pooled, replicated_delta
from shared.statistics import t_two_sided_95

K = 4


def sampling(rates: list[float], seed: int) -> dict[str, TaskCounts]:
    draw = random.Random(seed)
    return {
        f"t{number:04}": TaskCounts(
            scored=K,
            passed=sum(draw.random() < rate for _ in range(K)),
            no_sql=0,
            sql_error=0,
            rows=K,
            cut=0,
            tokens=9.0,
        )
        for number, rate in enumerate(rates)
    }


BASE = [0.4] * 400
BETTER = [0.55] * 400


def repeats(rates: list[float], *seeds: int) -> list[dict[str, TaskCounts]]:
    return [sampling(rates, seed) for seed in seeds]


def test_a_large_move_seen_by_every_pair_is_replicated() -> None:
    found = replicated_delta(repeats(BASE, 1, 2, 3), repeats(BETTER, 4, 5, 6), K, seed=0)
    assert (found.verdict, found.repeats, found.repeats_alone) == (DeltaVerdict.MOVED_REPLICATED, 3, 3)
    assert found.sentence.endswith("3 of 3 repeats show it by themselves.")


def test_one_sampling_a_side_says_nothing_of_repeats() -> None:
    found = replicated_delta(repeats(BASE, 1), repeats(BETTER, 4), K, seed=0)
    assert (found.verdict, found.repeats, found.repeats_alone) == (DeltaVerdict.MOVED, 1, 0)
    assert "repeats" not in found.sentence


def test_repeats_that_share_their_other_side_replicate_nothing() -> None:
    found = replicated_delta(repeats(BASE, 1), repeats(BETTER, 4, 5, 6), K, seed=0)
    assert found.verdict is DeltaVerdict.MOVED_UNREPLICATED


def test_a_move_that_one_pair_contradicts_is_not_replicated() -> None:
    after = [sampling([0.7] * 400, 4), sampling([0.7] * 400, 5), sampling([0.3] * 400, 6)]
    found = replicated_delta(repeats(BASE, 1, 2, 3), after, K, seed=0)
    assert found.verdict in (DeltaVerdict.WITHIN_EVAL_NOISE, DeltaVerdict.MOVED_UNREPLICATED)


def test_a_change_within_the_spread_of_the_repeats_is_noise_however_narrow_its_interval() -> None:
    # The evaluation itself swings by 0.1 from repeat to repeat, for all tasks alike: tasks cannot show that.
    swing = [-0.05, 0.05]
    before = [sampling([0.4 + shift] * 2000, 10 + at) for at, shift in enumerate(swing)]
    after = [sampling([0.46 + shift] * 2000, 20 + at) for at, shift in enumerate(swing)]
    found = replicated_delta(before, after, K, seed=0)
    assert found.lines[0].delta.low > 0
    assert found.verdict is DeltaVerdict.WITHIN_EVAL_NOISE


def test_pooled_counts_are_sums_and_a_task_of_one_repeat_stays() -> None:
    one, other = sampling(BASE, 1), sampling(BASE, 2)
    del other["t0000"]
    both = pooled([one, other])
    assert both["t0000"] == one["t0000"]
    assert (both["t0001"].scored, both["t0001"].passed) == (2 * K, one["t0001"].passed + other["t0001"].passed)
    assert both["t0001"].tokens == 9.0


def test_the_measured_band_is_the_two_sample_t_interval_of_the_means() -> None:
    before, after = repeats(BASE, 1, 2), repeats(BETTER, 3, 4)
    means = [[sum(c.pass_rate for c in one.values()) / len(one) for one in side] for side in (before, after)]
    variance = sum((low - high) ** 2 / 2 for low, high in means) / 2
    assert measured_band(before, after) == pytest.approx(4.302653 * variance**0.5)
    assert measured_band(before[:1], after) == 0.0


def test_t_quantiles_fall_towards_the_normal_one() -> None:
    found = [t_two_sided_95(degrees) for degrees in range(1, 200)]
    assert found == sorted(found, reverse=True)
    assert t_two_sided_95(24) == pytest.approx(2.0639, abs=1e-3)
    assert t_two_sided_95(100) == pytest.approx(1.9840, abs=1e-3)
