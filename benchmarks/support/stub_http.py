"""What the stubs share: raw ASGI under uvicorn, so that a stand-in costs little next to what is measured."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import uvicorn
from starlette.types import Receive, Scope, Send

from shared.contracts.base import Readiness


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; a body in parts is streamed."""

    body: bytes | AsyncIterator[bytes]
    status: int = 200
    headers: Sequence[tuple[bytes, bytes]] = ((b"content-type", b"application/json"),)


Handler = Callable[[str, bytes], Awaitable[Answer]]
"""From path and body to an answer."""


class StubApp:
    """Routes by method and a pattern of the whole path; the first that fits answers. Asks for no token."""

    def __init__(self, service: str, routes: Sequence[tuple[str, str, Handler]]) -> None:
        ready = Readiness(ready=True, service=service, checks={}, versions={"stub": "1"}).model_dump_json().encode()

        async def readyz(path: str, body: bytes) -> Answer:
            return Answer(ready)

        self._routes = [
            (method, re.compile(pattern), handler) for method, pattern, handler in [*routes, ("GET", "/readyz", readyz)]
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        body = await _body(receive)
        if body is None:
            return
        answer = await self._answer(scope["method"], scope["path"], body)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        if isinstance(answer.body, bytes):
            await send({"type": "http.response.body", "body": answer.body})
            return
        async for part in answer.body:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async def _answer(self, method: str, path: str, body: bytes) -> Answer:
        for wanted, pattern, handler in self._routes:
            if wanted == method and pattern.fullmatch(path):
                return await handler(path, body)
        return Answer(b"{}", status=404)


async def _body(receive: Receive) -> bytes | None:
    """None when the caller hung up."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def serve_stub(app: StubApp, port: int) -> None:
    """Serve on loopback until SIGTERM."""
    uvicorn.run(app, host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off")
