"""One FastAPI shape for every service: health, readiness, metrics, request ids, problem+json, scoped tokens."""

import asyncio
import inspect
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Annotated, Any, TypeVar

import psycopg
import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette import types as asgi
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from shared.auth import Scope, TokenFile, require
from shared.bodies import BodyLimit
from shared.contracts.base import FieldError, Health, Problem, Readiness
from shared.errors import Invalid, ServiceError, Unavailable
from shared.settings import ServiceSettings
from shared.telemetry import REQUEST_SECONDS, REQUESTS, configure_logging

log = logging.getLogger(__name__)

CHECK_SECONDS = 3.0
"""Longest wait for what a service needs: `sqlclimb status` and kubelet ask for at most 5 s, and want to hear which."""

Answer = TypeVar("Answer")

Check = Callable[[], Awaitable[str]]
"""Answers `ok` or the reason it fails."""

Versions = Callable[[], dict[str, str] | Awaitable[dict[str, str]]]


def problem_response(problem: Problem) -> JSONResponse:
    """The problem document as a response."""
    return JSONResponse(problem.model_dump(), status_code=problem.status, media_type="application/problem+json")


def create_app(
    service: str,
    tokens_file: TokenFile,
    lifespan: Callable[[FastAPI], Any],
    checks: dict[str, Check],
    versions: Versions,
    streamed: Collection[str] = (),
) -> FastAPI:
    """A FastAPI app with everything of design section 6 that is common. Add routers to it.

    `checks` decide `/readyz`; `versions` says what the service really runs; `streamed` are paths whose handlers read
    their body in parts and limit it themselves.
    """
    app = FastAPI(title=f"sqlclimb {service}", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.tokens = tokens_file

    @app.get("/healthz", response_model=Health)
    async def healthz() -> Health:
        return Health(service=service)

    @app.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
    async def readyz(response: Response) -> Readiness:
        *answers, known = await asyncio.gather(*map(_outcome, checks.values()), _versions(versions))
        results = dict(zip(checks, answers, strict=True))
        ready = all(result == "ok" for result in results.values())
        response.status_code = 200 if ready else 503
        return Readiness(ready=ready, service=service, checks=results, versions=known)

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    app.add_middleware(BodyLimit, tokens=tokens_file, streamed=streamed)
    _add_handlers(app, service)
    return app


async def _outcome(check: Check) -> str:
    """What a check answers; one that breaks, or takes too long, is one that fails."""
    try:
        return await _within(CHECK_SECONDS, check())
    except _NoAnswer as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def _versions(versions: Versions) -> dict[str, str]:
    try:
        found = versions()
        return await _within(CHECK_SECONDS, found) if inspect.isawaitable(found) else found
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


class _NoAnswer(Exception):
    """What was waited for took too long."""


_given_up: set["asyncio.Future[Any]"] = set()
"""Kept until they end."""


async def _within(seconds: float, work: Awaitable[Answer]) -> Answer:
    """What the work returns. Raises _NoAnswer after that time, even when the work takes longer to be cancelled.

    `asyncio.timeout` waits for the end of what it cancels, and psycopg spends 5 s on that when its server is cut off.
    """
    future = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({future}, timeout=seconds)
    except asyncio.CancelledError:
        future.cancel()
        raise
    if done:
        return future.result()
    future.cancel()
    _given_up.add(future)
    future.add_done_callback(_given_up.discard)
    raise _NoAnswer(f"no answer within {seconds:.0f} s")


class _Observed:
    """Gives every request an id and counts it. Plain ASGI: BaseHTTPMiddleware costs a task group for each message."""

    def __init__(self, app: asgi.ASGIApp, service: str) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = Headers(scope=scope).get("x-request-id") or uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started = time.perf_counter()

        async def observed(message: asgi.Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
                route = getattr(scope.get("route"), "path", "unmatched")
                REQUESTS.labels(self._service, scope["method"], route, message["status"]).inc()
                seconds = time.perf_counter() - started
                REQUEST_SECONDS.labels(self._service, scope["method"], route).observe(seconds)
            await send(message)

        await self._app(scope, receive, observed)


def _add_handlers(app: FastAPI, service: str) -> None:
    app.add_middleware(_Observed, service=service)

    def render(request: Request, status: int, title: str, detail: str, errors: list[FieldError]) -> JSONResponse:
        instance = getattr(request.state, "request_id", "")
        return problem_response(Problem(title=title, status=status, detail=detail, instance=instance, errors=errors))

    @app.exception_handler(ServiceError)
    async def refused(request: Request, error: ServiceError) -> JSONResponse:
        response = render(request, error.status, error.title, error.detail, error.errors)
        if error.retry_after_seconds is not None:
            response.headers["retry-after"] = str(error.retry_after_seconds)
        return response

    @app.exception_handler(psycopg.DataError)
    async def unstorable(request: Request, error: psycopg.DataError) -> JSONResponse:
        log.warning("a value cannot be stored: %s %s", type(error).__name__, error.sqlstate)  # its text may hold a gold
        detail = "a text with a NUL character, or a number that is none or too large, cannot be stored. It was not kept"
        return render(request, Invalid.status, Invalid.title, detail, [])

    @app.exception_handler(psycopg.OperationalError)
    async def database_away(request: Request, error: psycopg.OperationalError) -> JSONResponse:
        log.warning("the control database does not answer: %s %s", type(error).__name__, error.sqlstate)
        detail = f"the control database does not answer ({type(error).__name__}). What it holds is kept; ask again"
        return render(request, Unavailable.status, Unavailable.title, detail, [])

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = [
            FieldError(field=".".join(str(part) for part in fault["loc"][1:]) or "body", message=fault["msg"])
            for fault in error.errors()
        ]
        detail = "; ".join(f"`{fault.field}`: {fault.message}" for fault in errors[:5])
        return render(request, 422, "Invalid request", f"{detail}. Nothing was done.", errors)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        return render(request, error.status_code, str(error.detail), "", [])

    @app.exception_handler(Exception)
    async def crashed(request: Request, error: Exception) -> JSONResponse:
        log.exception("unhandled error on %s %s", request.method, request.url.path)
        detail = f"{type(error).__name__}: see the {service} log for this request id"
        return render(request, 500, "Internal error", detail, [])


async def scopes(request: Request) -> frozenset[Scope]:
    """Dependency: the caller's scopes. 401 when the token is missing or unknown."""
    tokens: TokenFile = request.app.state.tokens
    return tokens.scopes_of(request.headers.get("authorization"))


Scopes = Annotated[frozenset[Scope], Depends(scopes)]


def needs(scope: Scope) -> Any:
    """A route dependency: `dependencies=[needs(Scope.SAMPLE)]`."""

    async def check(found: Scopes) -> None:
        require(found, scope)

    return Depends(check)


def serve(app: FastAPI, service: str, settings: ServiceSettings, shutdown_seconds: int = 10) -> None:
    """Run the app until SIGTERM; requests in flight then have `shutdown_seconds` to end."""
    configure_logging(service, settings.log_level)
    uvicorn.run(
        app, host=settings.host, port=settings.port, log_config=None, timeout_graceful_shutdown=shutdown_seconds
    )
