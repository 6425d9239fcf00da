import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.statistics import (
    Floats,
    bootstrap_mean,
    detectable_effect,
    noise_deviation,
    pass_at_k,
    pass_hat_k,
    sign_flip_p,
)

SAMPLES = 8
TRIALS = 1000

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


def pass_at_1(passed: Floats) -> Floats:
    return passed / SAMPLES


def pass_at_4(passed: Floats) -> Floats:
    return np.array([pass_at_k(SAMPLES, int(count), 4) for count in passed])


@pytest.mark.parametrize("figure", [pass_at_1, pass_at_4])
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.4, 0.8)], ids=["even", "mostly hard or easy"])
def test_the_bootstrap_interval_covers_the_truth_93_to_97_times_in_100(
    figure: Callable[[Floats], Floats], a: float, b: float
) -> None:
    """Tasks whose true rates are Beta(a, b): the interval must hold the mean over all such tasks."""
    generator = np.random.default_rng(11)
    expected = np.array([beta_binomial(passed, SAMPLES, a, b) for passed in range(SAMPLES + 1)])
    truth = float(expected @ figure(np.arange(SAMPLES + 1)))
    by_count = figure(np.arange(SAMPLES + 1))
    covered = 0
    for trial in range(TRIALS):
        passed = generator.binomial(SAMPLES, generator.beta(a, b, size=200))
        found = bootstrap_mean(by_count[passed], seed=trial, draws=400)
        covered += found.low <= truth <= found.high
    assert 0.93 <= covered / TRIALS <= 0.97


def beta_binomial(passed: int, samples: int, a: float, b: float) -> float:
    """Chance of `passed` of `samples` at a rate drawn from Beta(a, b)."""
    log_beta = [
        math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y) for x, y in ((passed + a, samples - passed + b), (a, b))
    ]
    return math.comb(samples, passed) * math.exp(log_beta[0] - log_beta[1])


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
