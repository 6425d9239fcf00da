"""An engine's event stream, passed on part by part. Whatever ends it, the engine's side is closed."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack

import aiohttp
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from services.inference.gateway.replica import BROKEN, Broken
from shared.contracts.base import Problem


class Relay(StreamingResponse):
    """The engine's events as they come, `first` already read."""

    def __init__(
        self,
        first: bytes,
        rest: AsyncIterator[bytes],
        upstream: aiohttp.ClientResponse,
        headers: Mapping[str, str],
        held: ExitStack,
        lost: Callable[[Broken], Exception],
    ) -> None:
        """`held` is released at the end. `lost` is told of a broken connection; what it returns is for people."""
        super().__init__(self._parts(first, rest, lost), status_code=upstream.status, headers=headers)
        self._upstream = upstream
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the engine ends or the caller hangs up."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._held.close()
            self._upstream.close()

    @staticmethod
    async def _parts(
        first: bytes, rest: AsyncIterator[bytes], lost: Callable[[Broken], Exception]
    ) -> AsyncIterator[bytes]:
        yield first
        try:
            async for part in rest:
                yield part
        except BROKEN as error:
            yield cut_event(str(lost(error)))


def cut_event(reason: str) -> bytes:
    """The last event of a stream that broke after its first token: OpenAI's clients raise on `error`; no `[DONE]`."""
    problem = Problem(title="Unavailable", status=503, detail=f"the reply was cut: {reason}. Ask again")
    return b'\n\ndata: {"error": ' + problem.model_dump_json().encode() + b"}\n\n"
