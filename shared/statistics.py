"""pass@k, pass^k, bootstrap intervals, paired deltas and power. Pure functions over numpy arrays, one entry a task."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.contracts.measuring import Estimate

BOOTSTRAP_DRAWS = 2_000
SIGN_FLIP_DRAWS = 10_000
BOOTSTRAP_CHUNK_CELLS = 4_000_000
"""Index cells drawn at once: bounds memory to about 32 MB however many tasks there are."""

Z_TWO_SIDED_95 = 1.959964
Z_POWER_80 = 0.841621

T_TWO_SIDED_95 = (
    *(12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139),
    *(2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963),
)
"""Student's t quantiles at 0.975 for 1 to 20 degrees of freedom."""

Floats = NDArray[np.float64]


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k): chance that at least one of k draws without replacement passes (Chen et al. 2021).

    Raises ValueError unless 0 <= passed <= samples and 1 <= k <= samples.
    """
    _check_counts(samples, passed, k)
    return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


def pass_hat_k(samples: int, passed: int, k: int) -> float:
    """C(c, k) / C(n, k): chance that all of k draws without replacement pass (tau-bench's pass^k)."""
    _check_counts(samples, passed, k)
    return math.comb(passed, k) / math.comb(samples, k)


def _check_counts(samples: int, passed: int, k: int) -> None:
    if not (0 <= passed <= samples and 1 <= k <= samples):
        raise ValueError(f"need 0 <= passed <= samples and 1 <= k <= samples, got {passed=}, {samples=}, {k=}")


def bootstrap_mean(values: Sequence[float] | Floats, seed: int = 0, draws: int = BOOTSTRAP_DRAWS) -> Estimate:
    """Mean with its 95 % percentile bootstrap interval over tasks. NaN throughout for no tasks."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return Estimate(value=math.nan, low=math.nan, high=math.nan)
    generator = np.random.default_rng(seed)
    means = np.empty(draws)
    per_chunk = max(1, BOOTSTRAP_CHUNK_CELLS // array.size)
    for start in range(0, draws, per_chunk):
        count = min(per_chunk, draws - start)
        picks = generator.integers(0, array.size, size=(count, array.size))
        means[start : start + count] = array[picks].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return Estimate(value=float(array.mean()), low=float(low), high=float(high))


def sign_flip_p(differences: Sequence[float] | Floats, seed: int = 0, draws: int = SIGN_FLIP_DRAWS) -> float:
    """Two-sided sign-flip permutation p-value of a mean paired difference, with the +1 correction."""
    array = np.asarray(differences, dtype=np.float64)
    array = array[array != 0.0]  # a zero stays zero under any sign
    if array.size == 0:
        return 1.0
    observed = abs(array.sum())
    generator = np.random.default_rng(seed)
    at_least = 0
    per_chunk = max(1, BOOTSTRAP_CHUNK_CELLS // array.size)
    for start in range(0, draws, per_chunk):
        count = min(per_chunk, draws - start)
        signs = generator.integers(0, 2, size=(count, array.size)) * 2 - 1
        at_least += int((np.abs(signs @ array) >= observed - 1e-12).sum())
    return (at_least + 1) / (draws + 1)


def detectable_effect(standard_deviation: float, tasks: int) -> float:
    """Smallest mean paired difference that `tasks` pairs detect with 80 % power at two-sided 5 % (normal theory)."""
    if tasks < 2:
        return math.inf
    return (Z_TWO_SIDED_95 + Z_POWER_80) * standard_deviation / math.sqrt(tasks)


def t_two_sided_95(degrees: int) -> float:
    """Student's t at 0.975; above 20 degrees by the Cornish-Fisher expansion's two terms (off by less than 0.001)."""
    if degrees <= len(T_TWO_SIDED_95):
        return T_TWO_SIDED_95[degrees - 1]
    z = Z_TWO_SIDED_95
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def noise_deviation(pass_rates: Sequence[float] | Floats, k: int) -> float:
    """Standard deviation of a task's paired pass@1 difference when nothing changed: sqrt(mean 2 p (1 - p) / k)."""
    rates = np.asarray(pass_rates, dtype=np.float64)
    if rates.size == 0:
        return math.nan
    return math.sqrt(float((2.0 * rates * (1.0 - rates) / k).mean()))
