"""What the peers answer of a measurement: a sampling that runs or is done, and its report."""

import math
import statistics
from datetime import UTC, datetime
from typing import get_origin

from shared.contracts.measuring import Estimate, Report, ReportLine
from shared.contracts.rollout import Progress, Sampling, SamplingRequest, SamplingState


def interval(values: list[float]) -> Estimate:
    """A mean with its 95 % interval by the normal approximation."""
    mean = statistics.fmean(values)
    reach = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(value=mean, low=mean - reach, high=mean + reach)


def report_of(request: SamplingRequest, digest: str, pass_at_1: Estimate, pass_at_k: Estimate) -> Report:
    """A report that holds these two figures; all others are 0."""
    nothing = Estimate(value=0, low=0, high=0)
    zeros = {
        name: nothing if info.annotation is Estimate else {} if get_origin(info.annotation) is dict else 0
        for name, info in ReportLine.model_fields.items()
        if info.is_required()
    }
    measured = {
        "slice": "all",
        "pass_at_1": pass_at_1,
        "pass_at_k": pass_at_k,
        "headroom": pass_at_k.value - pass_at_1.value,
    }
    return Report(
        sampling_id=request.sampling_id,
        policy=request.policy,
        adapter_digest=digest,
        k=request.parameters.k,
        profile=request.profile,
        temperature=request.parameters.temperature,
        state=SamplingState.DONE,
        lines=[ReportLine(**zeros | measured)],
    )


def sampling_of(request: SamplingRequest, state: SamplingState, served: str) -> Sampling:
    """A sampling in that state, of the model that is served under that name."""
    progress = Progress(
        wanted=1, landed=1, rerolled=0, lost={}, rows_per_second=0, tokens_per_second=0, eta_seconds=None
    )
    return Sampling(
        sampling_id=request.sampling_id,
        request=request,
        state=state,
        progress=progress,
        policy_name=served,
        adapter_digest="",
        task_set_digest="",
        prompt_hash="",
        created_at=datetime.now(UTC),
    )
