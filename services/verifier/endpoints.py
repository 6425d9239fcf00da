"""HTTP of the verifier. Everything here sees golds, so every call needs the `gold` scope."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeVar

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response

from services.verifier.resources import Resources
from shared.auth import Scope
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

router = APIRouter(prefix="/v1/sandboxes", tags=["sandboxes"], dependencies=[needs(Scope.GOLD)])

Answer = TypeVar("Answer")


def _resources(request: Request) -> Resources:
    resources: Resources = request.app.state.resources
    return resources


Held = Annotated[Resources, Depends(_resources)]


async def _blocking(held: Resources, work: Callable[[], Answer]) -> Answer:
    return await anyio.to_thread.run_sync(work, limiter=held.requests)


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
async def verify(sandbox_id: str, body: VerifyRequest, held: Held) -> VerifyResponse:
    """Verdicts in the order of the items; partial failure is a verdict, never a 500."""
    sandbox = held.sandboxes.get(sandbox_id)
    return await _blocking(held, partial(held.verifier.verify, sandbox, body))


@router.post("/{sandbox_id}/execute", response_model=ExecuteResponse)
async def execute(sandbox_id: str, body: ExecuteRequest, held: Held) -> ExecuteResponse:
    """Statements on every seed, nothing cached."""
    sandbox = held.sandboxes.get(sandbox_id)
    return await _blocking(held, partial(held.verifier.execute, sandbox, body))


@router.post("/{sandbox_id}/explain", response_model=Explanation)
async def explain(sandbox_id: str, body: ExplainRequest, held: Held) -> Explanation:
    """Both results and the first difference: for people, never for models."""
    sandbox = held.sandboxes.get(sandbox_id)
    return await _blocking(held, partial(held.verifier.explain, sandbox, body))
