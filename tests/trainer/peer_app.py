"""The peers over HTTP: the paths that the trainer calls, with tokens and problems as the real services have them."""

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from shared.auth import Scope, TokenFile
from shared.contracts.inference import Adapter, AdapterList, AdapterRequest
from shared.contracts.measuring import Band, Report
from shared.contracts.rollout import BatchEnd, BatchRequest, Sampling, SamplingParameters, SamplingRequest
from shared.errors import Conflict, NotFound, Unavailable
from shared.web import create_app, needs
from tests.serving import served
from tests.trainer.peers import BAND_TASKS, Peers

BASE_NAME = "tiny"


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield


def _app(peers: Peers, tokens: Path) -> FastAPI:
    app = create_app("peers", TokenFile(tokens), _lifespan, {}, dict)
    app.router.dependencies.append(needs(Scope.TRAIN))

    @app.get("/v1/bands/{band_id}")
    def band(band_id: str) -> Band:
        if band_id not in ("band", "empty", "elsewhere"):
            raise NotFound(f"no band {band_id}")
        return Band(
            band_id=band_id,
            sampling_id="base-train",
            domain="other" if band_id == "elsewhere" else "shop",
            policy="base",
            adapter_digest="base",
            low=0.1,
            high=0.9,
            task_ids=[] if band_id == "empty" else BAND_TASKS,
            considered=20,
            below=5,
            above=5,
        )

    @app.post("/v1/batches")
    def batches(request: BatchRequest) -> Response:
        if request.attempt < peers.attempts.get(request.run_id, 0):
            raise Conflict(f"attempt {request.attempt} is over")
        peers.attempts[request.run_id] = request.attempt
        peers.requests.append(request)
        if peers.script.unavailable:
            peers.script.unavailable -= 1
            raise Unavailable("restarting")
        if peers.script.unserved:
            peers.script.unserved -= 1
            raise Conflict(f"policy {request.policy} lost its slot")
        if peers.script.unrouted:
            peers.script.unrouted -= 1
            return PlainTextResponse("Path '/v1/batches' not found.", 404)
        groups = peers.sample(request)
        if peers.script.hold_batch == request.step:
            peers.wait()

        async def lines() -> AsyncIterator[str]:
            for group in reversed(groups):  # any order is allowed
                yield group.model_dump_json() + "\n"
                if peers.script.cut:
                    peers.script.cut -= 1
                    return
            lost = sum(not sample.completion_ids for group in groups for sample in group.samples)
            end = BatchEnd(
                groups=len(groups),
                sample_seconds=0.01,
                verify_seconds=0.01,
                replayed_rows=0,
                lost={peers.script.lose_reason: lost} if lost else {},
            )
            yield end.model_dump_json() + "\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    @app.post("/v1/samplings")
    def measure(request: SamplingRequest) -> Sampling:
        peers.evaluations[request.sampling_id] = request
        threading.Thread(target=peers.measure, args=(request,), daemon=True).start()
        return peers.sampling(request.sampling_id)

    @app.get("/v1/samplings/{sampling_id}")
    def one_sampling(sampling_id: str) -> Sampling:
        return peers.sampling(sampling_id)

    @app.get("/v1/reports")
    def get_report(sampling: str) -> Report:
        if sampling == "base-train":  # the band's
            parameters = SamplingParameters(k=4, temperature=1.0, top_p=1.0)
            asked = SamplingRequest(sampling_id=sampling, domain="shop", parameters=parameters, task_ids=BAND_TASKS)
            return peers.evaluate(asked)
        return peers.reports[sampling]

    @app.get("/v1/adapters")
    def adapters() -> AdapterList:
        return AdapterList(
            base=BASE_NAME, model=str(peers.model), max_lora_rank=16, adapters=list(peers.adapters.values())
        )

    @app.get("/v1/adapters/{name}")
    def one_adapter(name: str) -> Adapter:
        return peers.adapters[name]

    @app.put("/v1/adapters/{name}")
    def publish(name: str, request: AdapterRequest) -> Adapter:
        return peers.publish(name, request)

    return app


@contextlib.contextmanager
def serving(model: Path, tokens: Path) -> Iterator[Peers]:
    """Peers on a free port, in a thread."""
    peers = Peers(model)
    with served(_app(peers, tokens), int(peers.url.rpartition(":")[2])):
        try:
            yield peers
        finally:
            peers.release.set()
