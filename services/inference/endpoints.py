"""HTTP of the gateway: OpenAI's routes passed through, and the adapter registry."""

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request, Response

from services.inference.proxy import forward
from services.inference.service import AdapterService
from shared.auth import Scope
from shared.contracts.inference import Adapter, AdapterList, AdapterRequest
from shared.web import needs

router = APIRouter()


def _service(request: Request) -> AdapterService:
    return cast(AdapterService, request.app.state.service)


Service = Annotated[AdapterService, Depends(_service)]


@router.post("/v1/chat/completions", dependencies=[needs(Scope.SAMPLE)], response_class=Response)
async def chat(request: Request, service: Service) -> Response:
    """OpenAI chat completions, with vLLM's extensions; an event stream when `stream` is true."""
    return await forward(request, service)


@router.post("/v1/completions", dependencies=[needs(Scope.SAMPLE)], response_class=Response)
async def completions(request: Request, service: Service) -> Response:
    """OpenAI completions, with vLLM's extensions; an event stream when `stream` is true."""
    return await forward(request, service)


@router.get("/v1/models", dependencies=[needs(Scope.SAMPLE)])
async def models(service: Service) -> dict[str, object]:
    """The base and the ready adapters, as OpenAI lists models."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "owned_by": "sqlclimb"} for name in service.models()],
    }


@router.get("/v1/adapters", dependencies=[needs(Scope.SAMPLE)])
async def adapters(service: Service) -> AdapterList:
    """All adapters, newest first."""
    return await service.adapters()


@router.get("/v1/adapters/{name}", dependencies=[needs(Scope.SAMPLE)])
async def adapter(name: str, service: Service) -> Adapter:
    """One adapter."""
    return await service.adapter(name)


@router.put("/v1/adapters/{name}", dependencies=[needs(Scope.TRAIN)])
async def publish(name: str, body: AdapterRequest, service: Service) -> Adapter:
    """Check, load on every engine, prove by the probe, flip to ready."""
    return await service.publish(name, body)


@router.delete("/v1/adapters/{name}", dependencies=[needs(Scope.TRAIN)], status_code=204)
async def remove(name: str, service: Service) -> None:
    """Let its requests end, unload it, forget it."""
    await service.remove(name)
