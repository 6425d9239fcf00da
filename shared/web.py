"""One FastAPI shape for every service: health, readiness, metrics, request ids, problem+json, scoped tokens."""

import inspect
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette import types as asgi
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from shared.auth import Scope, TokenFile, require
from shared.contracts.base import FieldError, Health, Problem, Readiness
from shared.errors import ServiceError
from shared.settings import ServiceSettings
from shared.telemetry import REQUEST_SECONDS, REQUESTS, configure_logging

log = logging.getLogger(__name__)

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
) -> FastAPI:
    """A FastAPI app with everything of design section 6 that is common. Add routers to it.

    `checks` decide `/readyz`; `versions` says what the service really runs.
    """
    app = FastAPI(title=f"sqlclimb {service}", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.tokens = tokens_file

    @app.get("/healthz", response_model=Health)
    async def healthz() -> Health:
        return Health(service=service)

    @app.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
    async def readyz(response: Response) -> Readiness:
        results = {}
        for name, check in checks.items():
            try:
                results[name] = await check()
            except Exception as error:  # a check that breaks is a check that fails
                results[name] = f"{type(error).__name__}: {error}"
        ready = all(result == "ok" for result in results.values())
        response.status_code = 200 if ready else 503
        try:
            found = versions()
            known = await found if inspect.isawaitable(found) else found
        except Exception as error:
            known = {"error": f"{type(error).__name__}: {error}"}
        return Readiness(ready=ready, service=service, checks=results, versions=known)

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    _add_handlers(app, service)
    return app


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
