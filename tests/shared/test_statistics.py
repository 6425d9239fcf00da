import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.statistics import bootstrap_mean, detectable_effect, noise_deviation, pass_at_k, pass_hat_k, sign_flip_p

counts = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)),
)


@given(counts)
def test_pass_rates_equal_enumeration_over_all_draws(sample: tuple[int, int, int]) -> None:
    n, c, k = sample
    outcomes = [1] * c + [0] * (n - c)
    draws = list(itertools.combinations(outcomes, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))


def test_impossible_counts_are_refused() -> None:
    for n, c, k in ((3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0)):
        with pytest.raises(ValueError, match="need 0 <= passed"):
            pass_at_k(n, c, k)


def test_the_bootstrap_interval_covers_the_truth_about_95_times_in_100() -> None:
    generator = np.random.default_rng(7)
    covered = 0
    for trial in range(400):
        rates = generator.binomial(4, generator.beta(1, 1, size=300)) / 4
        found = bootstrap_mean(rates, seed=trial, draws=500)
        covered += found.low <= 0.5 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


def test_the_bootstrap_is_seeded_and_brackets_the_mean() -> None:
    values = [0.0, 0.25, 1.0, 0.5]
    first = bootstrap_mean(values, seed=3)
    assert first == bootstrap_mean(values, seed=3)
    assert first.low <= first.value <= first.high
    assert math.isnan(bootstrap_mean([]).value)


def test_sign_flip_is_exact_for_few_pairs() -> None:
    # all eight sign patterns of (1, 1, 1): two of eight are as extreme
    assert sign_flip_p([1.0, 1.0, 1.0], draws=40_000) == pytest.approx(0.25, abs=0.02)
    assert sign_flip_p([0.0, 0.0]) == 1.0


def test_sign_flip_is_uniform_under_no_change_and_small_under_a_shift() -> None:
    generator = np.random.default_rng(1)
    below = [sign_flip_p(generator.normal(0, 1, 50), seed=i, draws=500) < 0.05 for i in range(300)]
    assert 0.02 <= np.mean(below) <= 0.09
    assert sign_flip_p(generator.normal(0.8, 1, 200)) < 0.001


def test_detectable_effect_is_detected_four_times_in_five() -> None:
    generator = np.random.default_rng(5)
    effect = detectable_effect(0.3, 200)
    found = [bool(abs(s.mean()) > 1.96 * s.std() / math.sqrt(200)) for s in generator.normal(effect, 0.3, (1000, 200))]
    assert 0.76 <= np.mean(found) <= 0.84
    assert detectable_effect(0.3, 1) == math.inf


def test_noise_deviation_matches_simulated_replicates() -> None:
    generator = np.random.default_rng(2)
    rates = generator.beta(1, 1, size=20_000)
    difference = generator.binomial(4, rates) / 4 - generator.binomial(4, rates) / 4
    assert noise_deviation(rates, 4) == pytest.approx(difference.std(), rel=0.03)
