"""The probe's verdict, from numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference.adapters.probe import fault, measure, shape_fault
from shared.contracts.inference import AdapterKind, Probe, ProbeSequence

NOISE = 1e-4


def probe(*publisher: float) -> Probe:
    """One sequence of as many scored tokens."""
    ids = list(range(len(publisher) + 1))
    return Probe(sequences=[ProbeSequence(token_ids=ids, start=1, logprobs=list(publisher))])


def verdict(publisher: float, served: float, base: float, kind: AdapterKind = AdapterKind.TRAINED) -> str:
    result = measure(probe(publisher, publisher), [[served, served]], [[base, base]])
    return fault(result, kind, tolerance=0.1, noise_nats=NOISE)


def test_gaps_are_means_over_all_tokens() -> None:
    result = measure(probe(-1.0, -2.0), served=[[-1.0, -2.5]], base=[[-2.0, -4.0]])
    assert result.served_minus_publisher == pytest.approx(0.25)
    assert result.base_minus_publisher == pytest.approx(1.5)
    assert result.served_minus_base == pytest.approx(1.25)
    assert result.tokens == 2


def test_served_adapter_that_agrees_passes() -> None:
    assert verdict(publisher=-1.0, served=-1.001, base=-2.0) == ""


@given(base=st.floats(-20, -1e-3), moved=st.floats(-NOISE, NOISE))
def test_served_adapter_that_equals_base_never_passes(base: float, moved: float) -> None:
    assert "equals base" in verdict(publisher=base - 1.0, served=base + 0.9 * moved, base=base)


@pytest.mark.parametrize("served", [-1.11, -0.5, -3.0])
def test_served_adapter_that_is_another_fails(served: float) -> None:
    assert "what serves is not what was trained" in verdict(publisher=-1.0, served=served, base=-2.0)


def test_not_a_number_fails() -> None:
    assert verdict(publisher=-1.0, served=float("nan"), base=-2.0)
    assert verdict(publisher=float("nan"), served=-1.0, base=-2.0)


def test_control_must_equal_base() -> None:
    assert verdict(-2.0, -2.0, -2.0, AdapterKind.CONTROL) == ""
    assert "more than noise" in verdict(-2.0, -2.01, -2.0, AdapterKind.CONTROL)
    assert verdict(-2.0, float("nan"), -2.0, AdapterKind.CONTROL)


def test_engine_that_answers_fewer_tokens_is_an_error() -> None:
    with pytest.raises(ValueError, match="longer than"):
        measure(probe(-1.0, -2.0), served=[[-1.0]], base=[[-1.0, -2.0]])


def test_probe_must_have_a_logprob_per_scored_token() -> None:
    assert shape_fault(probe(-1.0, -2.0)) == ""
    short = Probe(sequences=[ProbeSequence(token_ids=[1, 2, 3], start=1, logprobs=[-1.0])])
    assert shape_fault(short) == "probe.sequences.0: 3 tokens from start 1 need 2 logprobs, got 1"
    late = Probe(sequences=[ProbeSequence(token_ids=[1, 2], start=2, logprobs=[])])
    assert "need 1 logprobs" in shape_fault(late)
