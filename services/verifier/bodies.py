"""Requests before FastAPI sees them: a token with the `gold` scope, a body that is bounded, UTF-8, JSON.

Each refusal says what to send instead.

One reply must not cost its batch: escapes of lone surrogates, which no encoder can answer with, become U+FFFD here, as
every decoder of model output writes them.
"""

import inspect
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from shared.auth import Scope, TokenFile, require
from shared.contracts.base import FieldError
from shared.errors import Invalid, TooLarge, UnsupportedMedia
from shared.unicode import without_lone_surrogates

DRAINED_TIMES = 8
"""Of the limit: what is read and dropped of a body that is too long before the connection is cut."""

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class _ParsedRequest(Request):
    """A request whose body has been read."""

    def __init__(self, request: Request, raw: bytes, parsed: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._raw = raw
        self._parsed = parsed

    async def body(self) -> bytes:
        """As it came."""
        return self._raw

    async def json(self) -> Any:
        """The parsed body."""
        return self._parsed


class CheckedRoute(APIRoute):
    """A route that checks the token, then the body. The app's state holds `tokens` and `body_limit_bytes`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind the checks."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            _require_gold(request)
            if request.method != "POST":
                return await handle(request)
            raw = await _read(request, request.app.state.body_limit_bytes)
            return await handle(_ParsedRequest(request, raw, parse(raw, request.headers.get("content-type"))))

        return checked


class LeanRoute(CheckedRoute):
    """As CheckedRoute, for the call that a training step makes a thousand times: it calls the endpoint itself.

    FastAPI's way there costs more than verifying a reply. The endpoint takes path parameters, `body` and `request`, and
    answers a Response.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint behind the checks."""
        model: type[BaseModel] = inspect.signature(self.endpoint).parameters["body"].annotation

        async def checked(request: Request) -> Response:
            _require_gold(request)
            raw = await _read(request, request.app.state.body_limit_bytes)
            body = _validated(model, raw, request.headers.get("content-type"))
            response: Response = await self.endpoint(**request.path_params, body=body, request=request)
            return response

        return checked


def _require_gold(request: Request) -> None:
    tokens: TokenFile = request.app.state.tokens
    require(tokens.scopes_of(request.headers.get("authorization")), Scope.GOLD)


def _validated(model: type[BaseModel], raw: bytes, content_type: str | None) -> BaseModel:
    """The body. Raises as `parse`, and RequestValidationError."""
    _require_json(content_type)
    try:
        try:
            return model.model_validate_json(raw)
        except ValidationError as error:
            if error.errors(include_input=False)[0]["type"] != "json_invalid":
                raise
            return model.model_validate(parse(raw, content_type))  # which says more, and reads lone surrogates
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from error


async def _read(request: Request, limit_bytes: int) -> bytes:
    """The body. Raises TooLarge, when the rest has come too: a client that still writes would not see the answer."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit_bytes:
            chunks.append(chunk)
        elif size > DRAINED_TIMES * limit_bytes:
            break
        else:
            chunks.clear()
    if size > limit_bytes:
        raise TooLarge(
            f"the body is longer than {limit_bytes} bytes: split it into several requests, or raise "
            "SQLCLIMB_REQUEST_BYTES. Nothing was done"
        )
    return b"".join(chunks)


def parse(raw: bytes, content_type: str | None) -> Any:
    """The JSON value of a body. Raises UnsupportedMedia or Invalid, naming the place and the fix."""
    _require_json(content_type)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _unreadable(
            f"is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}; encode it as UTF-8"
        ) from error
    try:
        parsed = json.loads(text)
        return without_lone_surrogates(parsed) if _SURROGATE_ESCAPE.search(raw) else parsed
    except json.JSONDecodeError as error:
        raise _unreadable(f"is no JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise _unreadable("is nested too deeply: no field needs more than 4 levels") from error
    except ValueError as error:  # a number of thousands of digits
        raise _unreadable(f"is no JSON that can be read: {error}") from error


def _require_json(content_type: str | None) -> None:
    if (content_type or "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMedia(f"`content-type` is {content_type!r}: send JSON as `application/json`. Nothing was done")


def _unreadable(what: str) -> Invalid:
    return Invalid(f"the body {what}. Nothing was done", [FieldError(field="body", message=what)])
