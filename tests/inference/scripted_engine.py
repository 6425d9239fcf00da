"""A stand-in for a vLLM server that fails as told: what a real one does only now and then, at any moment wanted."""

import asyncio
import contextlib
import json
import threading
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from shared.contracts.base import Problem

METRICS = """vllm:num_requests_running{engine="0",model_name="base"} 3.0
vllm:num_requests_waiting{engine="0",model_name="base"} 5.0
vllm:kv_cache_usage_perc{engine="0",model_name="base"} 0.25
vllm:generation_tokens_total{engine="0",model_name="base"} 70.0
"""
ANSWER = {"model": "base", "choices": [{"text": "SELECT 1"}], "usage": {"completion_tokens": 7}}
DOWN = Problem(title="Engine down", status=503, detail="the engine ended with code 1: ValueError: max_model_len")
EVENT = b'data: {"choices": [{"text": "SELECT"}]}\n\n'


class Script(StrEnum):
    """What becomes of the next generations."""

    ANSWER = "answer"
    DIE = "die"  # the connection ends without an answer
    DIE_AFTER_HEADERS = "die after headers"
    CUT = "cut"  # the connection ends after one event, or in the middle of a body
    ERROR = "error"  # what vLLM says while its core dies
    HOLD = "hold"
    DOWN = "down"  # vLLM has ended, and its supervisor answers in its place


class ScriptedEngine:
    """One server in a thread of its own. Use as `with`."""

    def __init__(self) -> None:
        self.script = Script.ANSWER
        self.asked: list[dict[str, Any]] = []
        """Bodies of generations."""
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._released = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def hold(self) -> None:
        """Answer nothing before `release`."""
        self._released = asyncio.Event()
        self.script = Script.HOLD

    def release(self) -> None:
        """Answer what is held, and hold no more."""
        self.script = Script.ANSWER
        self._loop.call_soon_threadsafe(self._released.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        connections = asyncio.all_tasks(self._loop)
        for task in connections:
            task.cancel()
        self._loop.run_until_complete(asyncio.wait([*connections, self._loop.create_task(server.wait_closed())]))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((line for line in head.split("\r\n") if line.startswith("content-length")), ":0")
                body = await reader.readexactly(int(length.split(":")[1]))
                parts = await self._answer(head.split()[1], body)
                writer.writelines(part for part in parts if part is not None)
                if None in parts:
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, path: str, body: bytes) -> list[bytes | None]:
        """Bytes to send; None ends the connection."""
        if self.script is Script.DOWN:
            return [_whole(503, DOWN.model_dump_json(), "application/problem+json")]
        if path == "/v1/models":
            return [_whole(200, json.dumps({"data": [{"id": "base"}]}))]
        if path == "/metrics":
            return [_whole(200, METRICS)]
        if path == "/version":
            return [_whole(200, '{"version": "0.scripted"}')]
        asked = json.loads(body)
        self.asked.append(asked)
        return await self._generation(self.script, bool(asked.get("stream")))

    async def _generation(self, script: Script, stream: bool) -> list[bytes | None]:
        head = _stream_head() if stream else _whole(200, json.dumps(ANSWER)).partition(b"{")[0]
        if script is Script.DIE:
            return [None]
        if script is Script.DIE_AFTER_HEADERS:
            return [head, None]
        if script is Script.CUT:
            return [head, _chunk(EVENT) if stream else b"{", None]
        if script is Script.ERROR:
            return [_whole(500, json.dumps({"error": {"message": "EngineCore encountered an issue"}}))]
        if script is Script.HOLD:
            await self._released.wait()
        if stream:
            return [head, _chunk(EVENT), _chunk(EVENT), _chunk(b"data: [DONE]\n\n"), _chunk(b"")]
        return [_whole(200, json.dumps(ANSWER))]


def _whole(status: int, body: str, media_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body.encode()


def _stream_head() -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(part: bytes) -> bytes:
    return f"{len(part):x}\r\n".encode() + part + b"\r\n"
