"""Reads what the evaluations of checkpoints measured; they run in the rollout service and may outlive their run."""

import logging

from services.trainer.repository import RunRepository
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.contracts.inference import AdapterRequest, AdapterState
from shared.contracts.rollout import SamplingState
from shared.contracts.trainer import CurvePoint
from shared.ids import BASE_POLICY

log = logging.getLogger(__name__)

_UNFINISHED = (SamplingState.RUNNING, SamplingState.PAUSED)


class Curves:
    """The measured points of all runs."""

    def __init__(self, repository: RunRepository, rollout: RolloutClient, inference: InferenceClient) -> None:
        self._repository = repository
        self._rollout = rollout
        self._inference = inference

    async def read(self) -> None:
        """Fill in every evaluation that is done. A rollout service that is away is asked again at the next look."""
        for run_id, point in await self._repository.unmeasured():
            try:
                measured = await self._measured(point)
            except ServiceUnreachable as error:
                log.warning("%s; evaluations are read later", error)
                return
            if measured is not None:
                await self._repository.measured(run_id, measured)

    async def _measured(self, point: CurvePoint) -> CurvePoint | None:
        try:
            sampling = await self._rollout.sampling(point.sampling_id)
            if sampling.state is SamplingState.PAUSED and sampling.request.policy != BASE_POLICY:
                await self._serve_again(sampling.policy_name)
            if sampling.state in _UNFINISHED:
                return None
            if sampling.state is not SamplingState.DONE:
                return point.model_copy(update={"error": sampling.error or f"the sampling was {sampling.state}"})
            found = (await self._rollout.report(point.sampling_id)).lines[0].pass_at_1
        except ServiceProblem as error:
            if error.problem.status >= 500:
                return None
            return point.model_copy(update={"error": str(error)})
        return point.model_copy(update={"pass_at_1": found.value, "low": found.low, "high": found.high})

    async def _serve_again(self, name: str) -> None:
        """A sampling pauses too when its adapter has given its slot to newer ones; nobody else would serve it."""
        adapter = await self._inference.adapter(name)
        if adapter.state is AdapterState.UNLOADED:
            log.warning("%s is served again: the evaluation of its step waits for it", name)
            fields = {"uri", "base", "digest", "kind"}
            await self._inference.publish(name, AdapterRequest.model_validate(adapter.model_dump(include=fields)))
