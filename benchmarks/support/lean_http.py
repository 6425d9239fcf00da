"""A load generator that costs little next to what it measures: keep-alive HTTP/1.1, one request at a time."""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class LeanConnection:
    """POSTs JSON bodies that are bytes already. Use as `async with`."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._headers = f"host: {parts.netloc}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=2**20)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def post(self, path: str, body: bytes) -> bytes:
        """The answer's body. Raises RuntimeError for any status but 200."""
        head = f"POST {path} HTTP/1.1\r\n{self._headers}content-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status, _, headers = answer.partition(b"\r\n")
        lengths = [line for line in headers.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        content = await self._reader.readexactly(int(lengths[0].split(b":")[1]))
        if b" 200 " not in status:
            raise RuntimeError(f"{status.decode()}: {content[:300].decode()}")
        return content

    async def stream(self, path: str, body: bytes) -> AsyncIterator[bytes]:
        """The parts of a chunked answer as they come. Raises RuntimeError for any status but 200."""
        head = f"POST {path} HTTP/1.1\r\n{self._headers}content-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise RuntimeError(answer.decode())
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)
