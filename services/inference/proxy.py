"""Generation requests, passed on to an engine byte by byte: only the request's `model` is read, the answer is not."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import ExitStack

import httpx
from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from services.inference import metrics
from services.inference.replica import EngineUnreachable, Replica
from services.inference.service import AdapterService, Target
from shared.contracts.base import FieldError
from shared.contracts.inference import ADAPTER_DIGEST_HEADER, SERVED_MODEL_HEADER
from shared.errors import Invalid, Unavailable

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
NOT_FORWARDED = HOP_BY_HOP | {"host", "content-length", "authorization", "x-request-id"}
"""The caller's token is ours, not the engine's; the request id is sent on as the app knows it."""

ATTEMPTS = 2
"""A request whose engine died before it answered is asked once more, of another replica or of the restarted one."""


CALLER_GONE_STATUS = 499
"""What logs and metrics say of a request whose caller hung up; nobody receives it."""


class CallerGone(Exception):
    """The caller hung up before the engine answered; the engine's work was dropped too."""


class Relay(StreamingResponse):
    """An engine's event stream. Whatever ends it, the engine's side is closed and the adapter released."""

    def __init__(self, upstream: httpx.Response, headers: Mapping[str, str], held: ExitStack) -> None:
        super().__init__(upstream.aiter_raw(), status_code=upstream.status_code, headers=headers)
        self._upstream = upstream
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the engine ends or the caller hangs up."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._held.close()
            await self._upstream.aclose()


async def forward(request: Request, service: AdapterService) -> Response:
    """Serve one generation. Raises Invalid, NotFound, Conflict, Unavailable; engine errors pass through as they are."""
    body = await request.body()
    target = await service.target(model_of(body))
    headers = {name: value for name, value in request.headers.items() if name not in NOT_FORWARDED}
    headers["x-request-id"] = request.state.request_id
    with ExitStack() as stack:
        stack.enter_context(target.use)
        try:
            upstream = await _ask(request, service, target, headers, body, stack)
        except CallerGone:
            metrics.GENERATIONS.labels(target.policy, CALLER_GONE_STATUS).inc()
            return Response(status_code=CALLER_GONE_STATUS)
        metrics.GENERATIONS.labels(target.policy, upstream.status_code).inc()
        answer_headers = {name: value for name, value in upstream.headers.items() if name not in HOP_BY_HOP}
        answer_headers |= {SERVED_MODEL_HEADER: target.model, ADAPTER_DIGEST_HEADER: target.digest}
        if upstream.headers.get("content-type", "").startswith("text/event-stream"):
            return Relay(upstream, answer_headers, stack.pop_all())
        try:
            content = b"".join([part async for part in upstream.aiter_raw()])
        except httpx.TransportError as error:
            raise Unavailable(f"the engine's answer was cut ({type(error).__name__}); ask again") from error
        finally:
            await upstream.aclose()
        return Response(content, status_code=upstream.status_code, headers=answer_headers)


def model_of(body: bytes) -> str:
    """The `model` of an OpenAI request. Raises Invalid: vLLM would take a missing one for the base."""
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise Invalid(f"the body is no JSON: {error}. Nothing was generated") from error
    model = fields.get("model") if isinstance(fields, dict) else None
    if not isinstance(model, str) or not model:
        fault = FieldError(field="model", message="name a served model; GET /v1/models lists them")
        raise Invalid("`model` is missing. Nothing was generated", [fault])
    return model


async def _ask(
    request: Request,
    service: AdapterService,
    target: Target,
    headers: Mapping[str, str],
    body: bytes,
    stack: ExitStack,
) -> httpx.Response:
    """The engine's answer, its body still to be read. Raises Unavailable, CallerGone."""
    lost = ""
    for _ in range(ATTEMPTS):
        replica = await service.route(target.model)
        with ExitStack() as counted:
            counted.enter_context(replica.busy())
            try:
                upstream = await _while_caller_waits(request, replica, headers, body)
            except EngineUnreachable as error:
                lost = str(error)
                continue
            if upstream.status_code == 404 and target.model in replica.proven:
                await upstream.aclose()  # it restarted since it was looked at last
                replica.proven.discard(target.model)
                continue
            stack.push(counted.pop_all())
            return upstream
    raise Unavailable(f"{lost or service.fleet.state}. Nothing was generated; ask again in some seconds")


async def _while_caller_waits(
    request: Request, replica: Replica, headers: Mapping[str, str], body: bytes
) -> httpx.Response:
    asked = asyncio.ensure_future(replica.forward(request.url.path, headers, body))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise CallerGone
        return asked.result()
    finally:
        gone.cancel()
        asked.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
