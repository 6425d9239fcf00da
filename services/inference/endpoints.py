"""HTTP of the gateway: OpenAI's routes passed through, and the adapter registry."""

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse
from starlette.background import BackgroundTask

from services.inference.adapters.aliases import AliasService
from services.inference.adapters.service import AdapterService
from services.inference.adapters.uploads import Uploads
from services.inference.gateway.proxy import forward
from services.inference.gateway.replica import EngineRefused, EngineUnreachable
from shared.auth import Scope
from shared.contracts.base import Identifier
from shared.contracts.inference import (
    Adapter,
    AdapterList,
    AdapterRequest,
    Alias,
    AliasList,
    AliasRequest,
    Layout,
    Pressure,
    Upload,
)
from shared.errors import NotFound, Unavailable
from shared.web import needs

router = APIRouter()


async def _service(request: Request) -> AdapterService:
    return cast(AdapterService, request.app.state.service)


def _aliases(request: Request) -> AliasService:
    return cast(AliasService, request.app.state.aliases)


def _uploads(request: Request) -> Uploads:
    return cast(Uploads, request.app.state.uploads)


Service = Annotated[AdapterService, Depends(_service)]
Aliases = Annotated[AliasService, Depends(_aliases)]
Received = Annotated[Uploads, Depends(_uploads)]


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


@router.get("/v1/pressure", dependencies=[needs(Scope.SAMPLE)])
async def pressure(service: Service) -> Pressure:
    """How busy each engine is, at most a second old: for whoever paces requests."""
    return service.fleet.pressure()


@router.get("/v1/replicas/{replica}/metrics", response_class=PlainTextResponse)
async def replica_metrics(replica: str, service: Service) -> str:
    """vLLM's own metrics of one replica (host:port, as `/v1/pressure` lists them). Needs no token, as `/metrics`."""
    found = service.fleet.find(replica)
    if found is None:
        raise NotFound(f"no replica {replica!r}; GET /v1/pressure lists them")
    try:
        return await found.metrics()
    except (EngineUnreachable, EngineRefused) as error:
        raise Unavailable(str(error)) from error


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


@router.get("/v1/adapters/{name}/files", dependencies=[needs(Scope.SAMPLE)], response_class=FileResponse)
async def files(name: str, service: Service, layout: Layout = Layout.PEFT) -> FileResponse:
    """A tar of adapter_config.json and adapter_model.safetensors, fetched and checked as for serving."""
    archive = await service.archive(name, layout)
    return FileResponse(archive, media_type="application/x-tar", background=BackgroundTask(archive.unlink))


@router.post("/v1/uploads", dependencies=[needs(Scope.TRAIN)], status_code=201)
async def upload(request: Request, uploads: Received) -> Upload:
    """Keep a zip or tar of an adapter's folder; `PUT /v1/adapters/{name}` with its address publishes it."""
    return Upload(uri=await uploads.receive(request.stream()))


@router.put("/v1/adapters/{name}/pin", dependencies=[needs(Scope.TRAIN)])
async def pin(name: str, service: Service) -> Adapter:
    """Never unload it to make room."""
    return await service.pin(name, True)


@router.delete("/v1/adapters/{name}/pin", dependencies=[needs(Scope.TRAIN)])
async def unpin(name: str, service: Service) -> Adapter:
    """It may be unloaded to make room."""
    return await service.pin(name, False)


@router.get("/v1/aliases", dependencies=[needs(Scope.SAMPLE)])
async def list_aliases(aliases: Aliases) -> AliasList:
    """The stable names that applications call, and what each names now."""
    return await aliases.aliases()


@router.get("/v1/aliases/{name}", dependencies=[needs(Scope.SAMPLE)])
async def alias(name: str, aliases: Aliases) -> Alias:
    """One alias."""
    return await aliases.alias(name)


@router.put("/v1/aliases/{name}", dependencies=[needs(Scope.ADMIN)])
async def move_alias(name: Identifier, body: AliasRequest, aliases: Aliases) -> Alias:
    """Serve the policy everywhere, then let the alias name it; refused unless its delta has moved."""
    return await aliases.move(name, body)


@router.post("/v1/aliases/{name}/rollback", dependencies=[needs(Scope.ADMIN)])
async def roll_back_alias(name: str, aliases: Aliases) -> AliasList:
    """Undo the newest move. Answers all aliases: the first move undone removes the alias."""
    await aliases.roll_back(name)
    return await aliases.aliases()
