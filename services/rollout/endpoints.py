"""HTTP of the coordinator: translate, decide nothing."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from services.rollout.batches.service import BatchService, ndjson
from services.rollout.measuring.replay import ReplayService
from services.rollout.measuring.service import MeasuringService
from services.rollout.samplings.service import SamplingService
from shared.auth import Scope
from shared.contracts.measuring import Band, BandRequest, Delta, DeltaRequest, Replay, Report, Scan
from shared.contracts.rollout import (
    ENDPOINT_KEY_HEADER,
    BatchRequest,
    Row,
    Sampling,
    SamplingRequest,
    Samplings,
    VoidRequest,
)
from shared.web import needs

KEEPALIVE_SECONDS = 15.0
NDJSON = "application/x-ndjson"


@dataclass(frozen=True)
class Services:
    """What the routes call; opened by the app's lifespan."""

    samplings: SamplingService
    batches: BatchService
    measuring: MeasuringService
    replays: ReplayService


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Open = Annotated[Services, Depends(_services)]

sampling_routes = APIRouter(prefix="/v1", dependencies=[needs(Scope.SAMPLE)])
gold_routes = APIRouter(prefix="/v1", dependencies=[needs(Scope.GOLD)])
training_routes = APIRouter(prefix="/v1", dependencies=[needs(Scope.TRAIN)])


@sampling_routes.post("/samplings")
async def start_sampling(
    body: SamplingRequest,
    services: Open,
    api_key: Annotated[
        str | None, Header(alias=ENDPOINT_KEY_HEADER, max_length=1000, description="API key of `endpoint`")
    ] = None,
) -> Sampling:
    """Start a sampling, or go on with one."""
    return await services.samplings.start(body, api_key)


@sampling_routes.get("/samplings")
async def list_samplings(
    services: Open, limit: Annotated[int, Query(ge=1, le=1000, description="at most so many")] = 100
) -> Samplings:
    """Evaluations and bands, newest first; training batches are left out."""
    return Samplings(samplings=await services.samplings.newest(limit))


@sampling_routes.get("/samplings/{sampling_id}")
async def get_sampling(sampling_id: str, services: Open) -> Sampling:
    """Progress."""
    return await services.samplings.get(sampling_id)


@sampling_routes.delete("/samplings/{sampling_id}")
async def cancel_sampling(sampling_id: str, services: Open) -> Sampling:
    """Cancel; rows that landed stay."""
    return await services.samplings.cancel(sampling_id)


@sampling_routes.post("/samplings/{sampling_id}/void")
async def void_sampling(sampling_id: str, body: VoidRequest, services: Open) -> Sampling:
    """Withdraw it from reports, bands and deltas."""
    return await services.samplings.void(sampling_id, body.reason)


@sampling_routes.get("/samplings/{sampling_id}/events")
async def sampling_events(sampling_id: str, services: Open) -> StreamingResponse:
    """Progress as server-sent events, each a `Sampling`, until the end."""
    await services.samplings.get(sampling_id)

    async def lines() -> AsyncIterator[str]:
        async for sampling in services.samplings.events(sampling_id):
            yield f"event: progress\ndata: {sampling.model_dump_json()}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-cache"})


@sampling_routes.get("/samplings/{sampling_id}/rows")
async def sampling_rows(sampling_id: str, services: Open) -> StreamingResponse:
    """Every row that has landed, one JSON document a line."""
    rows = await services.samplings.rows(sampling_id)
    return StreamingResponse(_row_lines(rows), media_type=NDJSON)


async def _row_lines(rows: AsyncIterator[Row]) -> AsyncIterator[str]:
    async for row in rows:
        yield row.model_dump_json() + "\n"


@sampling_routes.get("/samplings/{sampling_id}/scan")
async def scan_sampling(sampling_id: str, services: Open) -> Scan:
    """Rewarded replies that may be reward hacking."""
    return await services.measuring.scan(sampling_id)


@gold_routes.post("/rows/{row_id}/replay")
async def replay_row(row_id: int, services: Open) -> Replay:
    """One verdict again, explained; shows the gold's result."""
    return await services.replays.replay(row_id)


@sampling_routes.get("/reports")
async def get_report(sampling: Annotated[str, Query(description="sampling id")], services: Open) -> Report:
    """The table of one sampling, right at any time."""
    return await services.measuring.report(sampling)


@sampling_routes.post("/bands")
async def cut_band(body: BandRequest, services: Open) -> Band:
    """Cut a band; the same id again answers the same band."""
    return await services.measuring.cut_band(body)


@sampling_routes.get("/bands/{band_id}")
async def get_band(band_id: str, services: Open) -> Band:
    """A band cut before."""
    return await services.measuring.band(band_id)


@sampling_routes.post("/deltas")
async def get_delta(body: DeltaRequest, services: Open) -> Delta:
    """Samplings of two sides, paired by task."""
    return await services.measuring.delta(body)


@training_routes.post("/batches")
async def open_batch(body: BatchRequest, services: Open) -> StreamingResponse:
    """A training step's groups as they finish, one JSON document a line, then the `end` line."""
    lines = await services.batches.open(body)
    return StreamingResponse(ndjson(lines, KEEPALIVE_SECONDS), media_type=NDJSON)
