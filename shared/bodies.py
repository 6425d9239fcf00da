"""How large a request's body may be. FastAPI reads a body whole before it looks at the caller's token."""

from collections.abc import Collection

from starlette import types as asgi
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from shared.auth import TokenFile
from shared.errors import Unauthenticated

MAXIMUM_BODY_BYTES = 256 * 1024**2
"""A bundle with its seed rows, or thousands of long replies to verify, stay under this."""

STRANGER_BODY_BYTES = 64 * 1024
"""Of a caller without a known token: enough to be told so."""


class BodyLimit:
    """Answers 413 once a body is larger than its caller may send; what comes after is not read."""

    def __init__(self, app: asgi.ASGIApp, tokens: TokenFile, streamed: Collection[str]) -> None:
        self._app = app
        self._tokens = tokens
        self._streamed = frozenset(streamed)
        """Paths that read their body in parts, after the token, and have a limit of their own."""

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """See ASGI."""
        if scope["type"] != "http" or scope["path"] in self._streamed:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        limit = self._limit(headers.get("authorization"))
        declared = headers.get("content-length", "")
        too_large = declared.isdecimal() and int(declared) > limit
        received = 0

        async def counted() -> asgi.Message:
            nonlocal received, too_large
            message = {} if too_large else await receive()
            received += len(message.get("body", b""))
            too_large = too_large or received > limit
            if too_large:
                raise HTTPException(413, f"The body has over {limit} bytes. Nothing was done")
            return message

        await self._app(scope, counted, send)

    def _limit(self, authorization: str | None) -> int:
        try:
            self._tokens.scopes_of(authorization)
        except Unauthenticated:
            return STRANGER_BODY_BYTES
        return MAXIMUM_BODY_BYTES
