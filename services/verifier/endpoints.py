"""HTTP of the verifier. Everything here sees golds, so every call needs the `gold` scope."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request, Response

from services.verifier.bodies import CheckedRoute, LeanRoute
from services.verifier.lanes import Abandoned, Lane
from services.verifier.resources import Resources
from shared.contracts.base import Contract
from shared.contracts.verifier import (
    ExecuteRequest,
    ExecuteResponse,
    ExplainRequest,
    Explanation,
    Sandbox,
    SandboxRequest,
    VerifyRequest,
    VerifyResponse,
)

CLIENT_CLOSED_REQUEST = 499
"""Nobody reads it; the metrics show it."""

router = APIRouter(prefix="/v1/sandboxes", tags=["sandboxes"], route_class=CheckedRoute)
verify_router = APIRouter(prefix="/v1/sandboxes", tags=["sandboxes"], route_class=LeanRoute)

Answer = TypeVar("Answer")


def _held(request: Request) -> Resources:
    resources: Resources = request.app.state.resources
    return resources


async def _blocking(held: Resources, work: Callable[[], Answer]) -> Answer:
    return await asyncio.get_running_loop().run_in_executor(held.requests, work)


async def _on_a_lane(request: Request, items: int, work: Callable[[Lane], Contract]) -> Response:
    """The answer of `work`, which is told to stop when the caller goes away. Raises Busy."""
    held = _held(request)
    lane = held.verifier.lane()
    with held.backlog.admitted(items):
        watching = asyncio.create_task(_abandon_when_gone(request, lane))
        try:
            answer = await _blocking(held, partial(work, lane))
        except Abandoned:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        finally:
            watching.cancel()
    return Response(answer.model_dump_json(), media_type="application/json")


async def _abandon_when_gone(request: Request, lane: Lane) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    lane.abandon()


@router.post("", response_model=Sandbox)
async def create_sandbox(body: SandboxRequest, request: Request) -> Sandbox:
    """A run's Postgres; the same id again answers the same sandbox."""
    held = _held(request)
    return await _blocking(held, lambda: held.create_sandbox(body))


@router.delete("/{sandbox_id}", status_code=204)
async def delete_sandbox(sandbox_id: str, request: Request) -> Response:
    """Remove it; unknown ids are no error."""
    held = _held(request)
    await _blocking(held, partial(held.sandboxes.delete, sandbox_id))
    return Response(status_code=204)


@verify_router.post("/{sandbox_id}/verify", response_model=VerifyResponse)
async def verify(sandbox_id: str, body: VerifyRequest, request: Request) -> Response:
    """Verdicts in the order of the items; partial failure is a verdict, never a 500."""
    held = _held(request)
    sandbox = held.sandboxes.get(sandbox_id)
    return await _on_a_lane(request, len(body.items), partial(held.verifier.verify, sandbox, body))


@router.post("/{sandbox_id}/execute", response_model=ExecuteResponse)
async def execute(sandbox_id: str, body: ExecuteRequest, request: Request) -> Response:
    """Statements on every seed, nothing cached."""
    held = _held(request)
    sandbox = held.sandboxes.get(sandbox_id)
    return await _on_a_lane(request, len(body.statements), partial(held.verifier.execute, sandbox, body))


@router.post("/{sandbox_id}/explain", response_model=Explanation)
async def explain(sandbox_id: str, body: ExplainRequest, request: Request) -> Response:
    """Both results and the first difference: for people, never for models."""
    held = _held(request)
    sandbox = held.sandboxes.get(sandbox_id)
    return await _on_a_lane(request, 1, partial(held.verifier.explain, sandbox, body))
