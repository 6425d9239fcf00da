"""HTTP of the runs API."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from services.trainer.service import RunService
from shared.auth import Scope
from shared.contracts.trainer import Run, RunRequest, StepList
from shared.web import needs

router = APIRouter(prefix="/v1/runs", dependencies=[needs(Scope.TRAIN)])


def _service(request: Request) -> RunService:
    service: RunService = request.app.state.runs
    return service


Runs = Annotated[RunService, Depends(_service)]


@router.post("")
async def start(request: RunRequest, runs: Runs) -> Run:
    """Start a run, or resume an unfinished one under the same id and config."""
    return await runs.start(request)


@router.get("/{run_id}")
async def show(run_id: str, runs: Runs) -> Run:
    """How a run stands."""
    return await runs.find(run_id)


@router.get("/{run_id}/steps")
async def steps(run_id: str, runs: Runs, after: Annotated[int, Query(ge=0)] = 0) -> StepList:
    """Steps with a number above `after`, in order."""
    return StepList(steps=await runs.steps(run_id, after))


@router.post("/{run_id}/stop")
async def stop(run_id: str, runs: Runs) -> Run:
    """End a run after the step in progress; its last adapter is published."""
    return await runs.stop(run_id)
