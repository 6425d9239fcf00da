"""A stand-in for a vLLM server, paced by sleep: a token every SQLCLIMB_TOKEN_SECONDS, whatever the load. As a program.

It answers what the gateway asks of an engine, and chat completions with token ids and log-probabilities: in one piece
when the last token is due, or streamed, each token when it is due.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator

from .stub_engine import completion, stream_parts
from .stub_http import Answer, StubApp, serve_stub

MODEL = "base"
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class PacedEngine:
    """One engine that is never busy."""

    def __init__(self, token_seconds: float, reply_tokens: int) -> None:
        self._token_seconds = token_seconds
        self._reply_tokens = reply_tokens
        self._first, (reply,) = stream_parts(MODEL, 1, reply_tokens, interval=1)
        self._whole = completion(MODEL, 1, reply_tokens)
        length = str(len(self._whole)).encode()
        self._whole_headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        self._events = [event + b"\n\n" for event in reply.split(b"\n\n") if event]

    def app(self) -> StubApp:
        """To be served."""
        return StubApp(
            "engine",
            [
                ("GET", "/health", self._health),
                ("GET", "/v1/models", self._models),
                ("GET", "/version", self._version),
                ("GET", "/metrics", self._health),
                ("POST", "/v1/chat/completions", self._chat),
            ],
        )

    async def _health(self, path: str, body: bytes) -> Answer:
        return Answer(b"")

    async def _models(self, path: str, body: bytes) -> Answer:
        return Answer(json.dumps({"data": [{"id": MODEL}]}).encode())

    async def _version(self, path: str, body: bytes) -> Answer:
        return Answer(b'{"version": "paced"}')

    async def _chat(self, path: str, body: bytes) -> Answer:
        started = asyncio.get_running_loop().time()
        if json.loads(body).get("stream"):
            return Answer(self._stream(started), headers=EVENTS)
        await self._due(started, self._reply_tokens)
        return Answer(self._whole, headers=self._whole_headers)

    async def _stream(self, started: float) -> AsyncIterator[bytes]:
        for number, event in enumerate(self._events, start=1):
            await self._due(started, number)
            yield self._first + event if number == 1 else event
        yield b"data: [DONE]\n\n"

    async def _due(self, started: float, tokens: int) -> None:
        await asyncio.sleep(started + tokens * self._token_seconds - asyncio.get_running_loop().time())


def main() -> None:
    """Serve until SIGTERM."""
    engine = PacedEngine(float(os.environ["SQLCLIMB_TOKEN_SECONDS"]), int(os.environ["SQLCLIMB_REPLY_TOKENS"]))
    serve_stub(engine.app(), int(os.environ["SQLCLIMB_PORT"]))


if __name__ == "__main__":
    main()
