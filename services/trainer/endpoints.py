"""HTTP of the runs API."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from services.trainer.planning.planner import Planner, presets
from services.trainer.service import RunService
from services.trainer.supervised.intake import Intake, refuse_without_gold
from shared.auth import Scope
from shared.contracts.planning import DryRun, DryRunRequest, Plan, PlanRequest, PresetList
from shared.contracts.trainer import EventList, Run, RunList, RunLog, RunRequest, StepList
from shared.web import Scopes, needs

router = APIRouter(prefix="/v1/runs", dependencies=[needs(Scope.TRAIN)])
plan_router = APIRouter(prefix="/v1", dependencies=[needs(Scope.TRAIN)])


def _service(request: Request) -> RunService:
    service: RunService = request.app.state.runs
    return service


Runs = Annotated[RunService, Depends(_service)]


@plan_router.get("/presets")
async def list_presets() -> PresetList:
    """The shipped presets."""
    return PresetList(presets=list(presets().values()))


@plan_router.post("/plans")
async def plan(request: PlanRequest, http: Request) -> Plan:
    """Memory, tokens, time and price of a run; starts nothing."""
    planner: Planner = http.app.state.planner
    return await planner.plan(request)


@plan_router.post("/dry-runs")
async def dry_run(request: DryRunRequest, http: Request, scopes: Scopes) -> DryRun:
    """What a supervised run would learn from, counted; starts nothing. Golds need the `gold` scope."""
    refuse_without_gold(request.config, scopes)
    intake: Intake = http.app.state.intake
    return await intake.dry_run(request.config)


@router.post("")
async def start(request: RunRequest, runs: Runs, scopes: Scopes) -> Run:
    """Start a run, or resume an unfinished one under the same id and config. Golds need the `gold` scope."""
    refuse_without_gold(request.config, scopes)
    return await runs.start(request)


@router.get("")
async def newest(runs: Runs, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> RunList:
    """The newest runs."""
    return RunList(runs=await runs.newest(limit))


@router.get("/{run_id}")
async def show(run_id: str, runs: Runs) -> Run:
    """How a run stands."""
    return await runs.find(run_id)


@router.get("/{run_id}/steps")
async def steps(run_id: str, runs: Runs, after: Annotated[int, Query(ge=0)] = 0) -> StepList:
    """Steps with a number above `after`, in order."""
    return StepList(steps=await runs.steps(run_id, after))


@router.get("/{run_id}/events")
async def events(run_id: str, runs: Runs) -> EventList:
    """Starts, pauses, guards that fired and ends, oldest first."""
    return EventList(events=await runs.events(run_id))


@router.get("/{run_id}/log")
async def log(run_id: str, runs: Runs) -> RunLog:
    """The end of the newest job's log."""
    return RunLog(run_id=run_id, tail=await runs.log(run_id))


@router.post("/{run_id}/resume")
async def resume(run_id: str, runs: Runs, scopes: Scopes) -> Run:
    """The next attempt of an unfinished run. Golds need the `gold` scope."""
    refuse_without_gold((await runs.find(run_id)).config, scopes)
    return await runs.resume(run_id)


@router.post("/{run_id}/stop")
async def stop(run_id: str, runs: Runs) -> Run:
    """End a run after the step in progress; its last adapter is published."""
    return await runs.stop(run_id)
