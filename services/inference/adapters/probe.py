"""Whether the adapter that serves is the adapter that trained: teacher-forced log-probabilities compared. Pure."""

from collections.abc import Sequence

from shared.contracts.inference import AdapterKind, Probe, ProbeResult

Logprobs = Sequence[Sequence[float]]
"""For each sequence of the probe, the scored tokens' log-probabilities."""


def measure(probe: Probe, served: Logprobs, base: Logprobs) -> ProbeResult:
    """Mean absolute differences per token. Raises ValueError when the lengths differ."""
    publisher = [sequence.logprobs for sequence in probe.sequences]
    return ProbeResult(
        served_minus_publisher=_mean_gap(served, publisher),
        base_minus_publisher=_mean_gap(base, publisher),
        served_minus_base=_mean_gap(served, base),
        tokens=sum(len(sequence) for sequence in publisher),
    )


def _mean_gap(left: Logprobs, right: Logprobs) -> float:
    gaps = [
        abs(a - b)
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one, other, strict=True)  # raises where lengths differ
    ]
    return sum(gaps) / len(gaps)


def fault(result: ProbeResult, kind: AdapterKind, tolerance: float, noise_nats: float) -> str:
    """Why the probe fails; empty when it passes."""
    served, base, moved = result.served_minus_publisher, result.base_minus_publisher, result.served_minus_base
    if kind is AdapterKind.CONTROL:
        if moved <= noise_nats:
            return ""
        return f"the control differs from base by {moved:.2e} nats a token, more than noise ({noise_nats:.0e})"
    if not moved > noise_nats:  # also catches NaN
        return (
            f"the served adapter equals base ({moved:.2e} nats a token, noise {noise_nats:.0e}): "
            f"the engine did not apply it, or it was barely trained (the publisher moved {base:.2e})"
        )
    if not served <= tolerance * base:
        return (
            f"mean |served - publisher| {served:.2e} is over {tolerance:g} of mean |base - publisher| {base:.2e}: "
            "what serves is not what was trained (alpha, base, or the publisher's own log-probabilities differ)"
        )
    return ""


def shape_fault(probe: Probe) -> str:
    """What is inconsistent in a probe; empty when nothing is."""
    for index, sequence in enumerate(probe.sequences):
        scored = len(sequence.token_ids) - sequence.start
        if scored < 1 or scored != len(sequence.logprobs):
            return (
                f"probe.sequences.{index}: {len(sequence.token_ids)} tokens from start {sequence.start} need "
                f"{max(scored, 1)} logprobs, got {len(sequence.logprobs)}"
            )
    return ""
