"""Sums over micro-batches give the batch's own means, however it is cut."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.trainer.learning.agreement import Agreement, AgreementSums

NATS = st.lists(st.floats(-3, 3), max_size=8)


def closed(parts: list[list[float]]) -> Agreement:
    sums = AgreementSums()
    for part in parts:
        difference = torch.tensor(part, dtype=torch.float64)
        sums.add(difference, difference.exp().clamp(max=2.0))
        sums.add_kl(difference)
    return sums.close(lambda total: total)


@given(st.lists(NATS, max_size=5))
@settings(deadline=None)
def test_the_cut_into_micro_batches_changes_nothing(parts: list[list[float]]) -> None:
    whole, cut = closed([[value for part in parts for value in part]]), closed(parts)
    assert vars(cut) == pytest.approx(vars(whole), rel=1e-9, abs=1e-12)
    assert 0 < cut.effective_sample_size <= 1 + 1e-9
    assert cut.kl >= -1e-12


def test_the_figures_by_hand() -> None:
    found = closed([[0.0, 0.0], [10.0, -10.0]])
    assert found.logprob_gap == 5.0
    assert found.importance_ratio == pytest.approx((2 + 22026.4658) / 4)
    assert found.effective_sample_size == pytest.approx((1 + 1 + 2) ** 2 / (4 * (1 + 1 + 4)), rel=1e-3)
    assert closed([]) == Agreement(logprob_gap=0.0, importance_ratio=1.0, effective_sample_size=1.0, kl=0.0)


def test_a_policy_that_ran_away_has_finite_figures() -> None:
    sums = AgreementSums()
    sums.add(torch.tensor([1e6, -1e6, 3e38]), torch.tensor([2.0, 0.0, 2.0]))
    sums.add_kl(torch.tensor([1e6, -1e6]))
    found = sums.close(lambda total: total)
    assert all(math.isfinite(value) for value in vars(found).values())
    assert found.importance_ratio > 1e40, "and still says that it did"


def test_workers_are_summed() -> None:
    sums = AgreementSums()
    sums.add(torch.tensor([1.0]), torch.tensor([1.0]))
    assert sums.close(lambda total: total + torch.tensor([1.0, 3.0, 1.0, 1.0, 1.0, 0.0, 0.0])).logprob_gap == 2.0
