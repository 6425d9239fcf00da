"""Client of the trainer."""

from shared.clients.base import ServiceClient
from shared.contracts.planning import DryRun, DryRunRequest, Plan, PlanRequest, PresetList
from shared.contracts.trainer import EventList, Run, RunList, RunLog, RunRequest, StepList


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

    async def presets(self) -> PresetList:
        """The shipped presets."""
        return await self.call("GET", "/v1/presets", PresetList)

    async def plan(self, request: PlanRequest) -> Plan:
        """What a run would need and cost; starts nothing."""
        return await self.call("POST", "/v1/plans", Plan, request)

    async def dry_run(self, request: DryRunRequest) -> DryRun:
        """What a supervised run would learn from; starts nothing. Golds need the `gold` scope."""
        return await self.call("POST", "/v1/dry-runs", DryRun, request)

    async def runs(self, limit: int = 100) -> RunList:
        """The newest runs."""
        return await self.call("GET", "/v1/runs", RunList, params={"limit": limit})

    async def events(self, run_id: str) -> EventList:
        """What was told of it."""
        return await self.call("GET", f"/v1/runs/{run_id}/events", EventList)

    async def log(self, run_id: str) -> RunLog:
        """The end of its newest job's log."""
        return await self.call("GET", f"/v1/runs/{run_id}/log", RunLog)

    async def resume(self, run_id: str) -> Run:
        """Start the next attempt of an unfinished run."""
        return await self.call("POST", f"/v1/runs/{run_id}/resume", Run)

    async def stop(self, run_id: str) -> Run:
        """End it after the step in progress."""
        return await self.call("POST", f"/v1/runs/{run_id}/stop", Run)
