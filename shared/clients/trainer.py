"""Client of the trainer."""

from shared.clients.base import ServiceClient
from shared.contracts.trainer import Run, RunRequest, StepList


class TrainerClient(ServiceClient):
    """Runs and their steps. Needs the `train` scope."""

    service = "trainer"

    async def start(self, request: RunRequest) -> Run:
        """Start or resume a run."""
        return await self.call("POST", "/v1/runs", Run, request)

    async def run(self, run_id: str) -> Run:
        """How it stands."""
        return await self.call("GET", f"/v1/runs/{run_id}", Run)

    async def steps(self, run_id: str, after: int = 0) -> StepList:
        """Steps with a number above `after`."""
        return await self.call("GET", f"/v1/runs/{run_id}/steps", StepList, params={"after": after})

    async def stop(self, run_id: str) -> Run:
        """End it after the step in progress."""
        return await self.call("POST", f"/v1/runs/{run_id}/stop", Run)
