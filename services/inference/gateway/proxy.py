"""Generation requests, passed on to an engine byte by byte: what the gateway needs of a request is read, no answer is.

A request whose replica dies before its caller got anything is asked again of another one: before the first event of a
stream, or at any time for an answer in one piece.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import aiohttp
from fastapi import Request
from fastapi.responses import Response

from services.inference import metrics
from services.inference.adapters.service import AdapterService, Target
from services.inference.gateway.generation_request import GenerationRequest, read_generation, renamed
from services.inference.gateway.relay import Relay
from services.inference.gateway.replica import BROKEN, EngineUnreachable, Replica
from shared.contracts.inference import ADAPTER_DIGEST_HEADER, SERVED_MODEL_HEADER
from shared.errors import Busy, Conflict, Invalid, NotFound, ServiceError, TooLarge, Unavailable

Result = TypeVar("Result")

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
"""One more than may die: a request that itself kills engines must not go through all of them."""

MAXIMUM_BODY_BYTES = 32 * 1024**2
"""A prompt of a million tokens as a list of ids takes 7 MB."""

CALLER_GONE_STATUS = 499
"""What logs and metrics say of a request whose caller hung up; nobody receives it."""

REASONS: dict[type[ServiceError], str] = {
    Invalid: "invalid",
    TooLarge: "too_large",
    NotFound: "unknown_model",
    Conflict: "not_ready",
    Busy: "saturated",
    Unavailable: "unavailable",
}
OTHER_REASON = "other"
for _reason in (*REASONS.values(), OTHER_REASON):  # from 0 on: a rate misses the event that makes its series
    metrics.REFUSALS.labels(_reason)

_COMPLETION_TOKENS = re.compile(rb'"completion_tokens":\s*(\d+)')
"""In `usage`. Inside a reply's text the quotes would be escaped."""


class CallerGone(Exception):
    """The caller hung up before the engine answered; the engine's work was dropped too."""


@dataclass
class Meter:
    """Counts one answer's tokens and times."""

    policy: str
    started: float = field(default_factory=time.perf_counter)
    tokens: int = 0

    def first_event(self) -> None:
        """A stream's first event is here."""
        metrics.FIRST_TOKEN_SECONDS.observe(time.perf_counter() - self.started)

    def read(self, part: bytes) -> None:
        """A part of the answer."""
        if usage := _COMPLETION_TOKENS.search(part):
            self.tokens = int(usage[1])

    def close(self) -> None:
        """The answer has ended."""
        metrics.GENERATED_TOKENS.labels(self.policy).inc(self.tokens)
        metrics.GENERATION_SECONDS.observe(time.perf_counter() - self.started)


@dataclass(frozen=True)
class Upstream:
    """An engine's answer: all of it, or of a stream its first event."""

    response: aiohttp.ClientResponse
    replica: Replica
    first: bytes
    rest: AsyncIterator[bytes] | None
    """The parts to come of a stream."""


async def forward(request: Request, service: AdapterService) -> Response:
    """Serve one generation; engine errors pass through as they are.

    Raises Invalid, TooLarge, NotFound, Conflict, Busy, Unavailable.
    """
    try:
        body = await _read(request)
        asked = read_generation(body, request.headers)
        target = await service.target(asked.model)
        if target.model != asked.model:
            body, asked = renamed(body, target.model), replace(asked, model=target.model)
        return await _serve(request, body, asked, target, service)
    except ServiceError as error:
        metrics.REFUSALS.labels(REASONS.get(type(error), OTHER_REASON)).inc()
        raise


async def _read(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAXIMUM_BODY_BYTES:
            raise TooLarge(f"the body has more than {MAXIMUM_BODY_BYTES} bytes. Nothing was generated")
        parts.append(part)
    return b"".join(parts)


async def _serve(
    request: Request, body: bytes, asked: GenerationRequest, target: Target, service: AdapterService
) -> Response:
    headers = {name: value for name, value in request.headers.items() if name not in NOT_FORWARDED}
    headers["x-request-id"] = request.state.request_id
    meter = Meter(target.policy)
    with ExitStack() as held:
        held.enter_context(target.use)
        try:
            upstream = await _ask(request, headers, body, asked, service, held)
        except CallerGone:
            metrics.GENERATIONS.labels(target.policy, CALLER_GONE_STATUS).inc()
            return Response(status_code=CALLER_GONE_STATUS)
        status = upstream.response.status
        metrics.GENERATIONS.labels(target.policy, status).inc()
        answer_headers = {
            name: value for name, value in upstream.response.headers.items() if name.lower() not in HOP_BY_HOP
        }
        answer_headers |= {SERVED_MODEL_HEADER: target.model, ADAPTER_DIGEST_HEADER: target.digest}
        held.callback(meter.close)
        meter.read(upstream.first)
        if upstream.rest is None:
            return Response(upstream.first, status_code=status, headers=answer_headers)
        meter.first_event()
        rest = _metered(upstream.rest, meter)
        return Relay(upstream.first, rest, upstream.response, answer_headers, held.pop_all(), upstream.replica.lost)


async def _metered(parts: AsyncIterator[bytes], meter: Meter) -> AsyncIterator[bytes]:
    async for part in parts:
        meter.read(part)
        yield part


async def _ask(
    request: Request,
    headers: Mapping[str, str],
    body: bytes,
    asked: GenerationRequest,
    service: AdapterService,
    held: ExitStack,
) -> Upstream:
    """An engine's answer; what it holds until the end is pushed on `held`. Raises Unavailable, Busy, CallerGone."""
    lost = ""
    avoid: set[Replica] = set()
    for attempt in range(1, ATTEMPTS + 1):
        replica = await _choose(asked, service, avoid)
        avoid.add(replica)
        if attempt > 1:
            metrics.RETRIES.inc()
        with ExitStack() as counted:
            counted.enter_context(replica.busy(asked.sequences))
            try:
                upstream = await _while_caller_waits(request, _receive(replica, request.url.path, headers, body))
            except EngineUnreachable as error:
                lost = str(error)
                continue
            status = upstream.response.status
            forgotten = status == 404 and asked.model in replica.proven
            if forgotten:  # it restarted since it was looked at last
                replica.proven.discard(asked.model)
            if forgotten or (status >= 500 and attempt < ATTEMPTS):  # vLLM answers 500 while its core dies
                upstream.response.close()
                continue
            held.push(counted.pop_all())
            return upstream
    raise Unavailable(f"{lost or service.fleet.state}. Nothing was generated; ask again in some seconds")


async def _choose(asked: GenerationRequest, service: AdapterService, avoid: set[Replica]) -> Replica:
    fleet = service.fleet
    if not fleet.serves(asked.model):
        await service.reconcile()
        if not fleet.serves(asked.model):
            raise Unavailable(f"{asked.model} cannot be served now: {fleet.state}. Nothing was generated; ask again")
    replica = fleet.choose(asked.model, asked.key, asked.sequences, avoid)
    if replica is None:
        raise Busy(f"every engine that serves {asked.model} is full (SQLCLIMB_MAX_IN_FLIGHT). Nothing was generated")
    return replica


async def _receive(replica: Replica, path: str, headers: Mapping[str, str], body: bytes) -> Upstream:
    """Raises EngineUnreachable, also when the connection breaks before the answer, or its first event, is here."""
    response = await replica.forward(path, headers, body)
    try:
        if response.content_type == "text/event-stream":
            parts = response.content.iter_any()
            return Upstream(response, replica, await anext(parts, b""), parts)
        return Upstream(response, replica, await response.read(), None)
    except BaseException as error:
        response.close()
        if isinstance(error, BROKEN):
            raise replica.lost(error) from error
        raise


async def _while_caller_waits(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The work's result. Raises CallerGone when the caller hung up first; the work is dropped."""
    asked = asyncio.ensure_future(work)
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
