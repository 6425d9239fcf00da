"""HTTP of the verifier. Everything here sees golds, so every call needs the `gold` scope."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeVar

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response

from services.verifier.bodies import CheckedRoute
from services.verifier.lanes import Abandoned, Lane
from services.verifier.resources import Resources
from shared.auth import Scope
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
from shared.web import needs

CLIENT_CLOSED_REQUEST = 499
"""Nobody reads it; the metrics show it."""

router = APIRouter(
    prefix="/v1/sandboxes", tags=["sandboxes"], dependencies=[needs(Scope.GOLD)], route_class=CheckedRoute
)

Answer = TypeVar("Answer")


async def _resources(request: Request) -> Resources:  # a plain function would be run on a thread
    resources: Resources = request.app.state.resources
    return resources


Held = Annotated[Resources, Depends(_resources)]


async def _blocking(held: Resources, work: Callable[[], Answer]) -> Answer:
    return await anyio.to_thread.run_sync(work, limiter=held.requests)


async def _on_a_lane(request: Request, held: Resources, items: int, work: Callable[[Lane], Contract]) -> Response:
    """The answer of `work`, which is told to stop when the caller goes away. Raises Busy."""
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
async def create_sandbox(body: SandboxRequest, held: Held) -> Sandbox:
    """A run's Postgres; the same id again answers the same sandbox."""
    return await _blocking(held, lambda: held.create_sandbox(body))


@router.delete("/{sandbox_id}", status_code=204)
async def delete_sandbox(sandbox_id: str, held: Held) -> Response:
    """Remove it; unknown ids are no error."""
    await _blocking(held, partial(held.sandboxes.delete, sandbox_id))
    return Response(status_code=204)


@router.post("/{sandbox_id}/verify", response_model=VerifyResponse)
async def verify(sandbox_id: str, body: VerifyRequest, request: Request, held: Held) -> Response:
    """Verdicts in the order of the items; partial failure is a verdict, never a 500."""
    sandbox = held.sandboxes.get(sandbox_id)
    return await _on_a_lane(request, held, len(body.items), partial(held.verifier.verify, sandbox, body))


@router.post("/{sandbox_id}/execute", response_model=ExecuteResponse)
async def execute(sandbox_id: str, body: ExecuteRequest, request: Request, held: Held) -> Response:
    """Statements on every seed, nothing cached."""
    sandbox = held.sandboxes.get(sandbox_id)
    return await _on_a_lane(request, held, len(body.statements), partial(held.verifier.execute, sandbox, body))


@router.post("/{sandbox_id}/explain", response_model=Explanation)
async def explain(sandbox_id: str, body: ExplainRequest, request: Request, held: Held) -> Response:
    """Both results and the first difference: for people, never for models."""
    sandbox = held.sandboxes.get(sandbox_id)
    return await _on_a_lane(request, held, 1, partial(held.verifier.explain, sandbox, body))
