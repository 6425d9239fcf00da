"""Reads what the evaluations of checkpoints measured; they run in the rollout service and may outlive their run."""

import logging

from services.trainer.repository import RunRepository
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.rollout import RolloutClient
from shared.contracts.rollout import SamplingState
from shared.contracts.trainer import CurvePoint

log = logging.getLogger(__name__)

_UNFINISHED = (SamplingState.RUNNING, SamplingState.PAUSED)


class Curves:
    """The measured points of all runs."""

    def __init__(self, repository: RunRepository, rollout: RolloutClient) -> None:
        self._repository = repository
        self._rollout = rollout

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
