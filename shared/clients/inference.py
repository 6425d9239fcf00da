"""Client of the inference gateway: generation and adapters."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from shared.clients.base import ServiceClient, ServiceUnreachable, raise_for_problem, split_lines
from shared.contracts.inference import (
    Adapter,
    AdapterList,
    AdapterRequest,
    Alias,
    AliasList,
    AliasRequest,
    Layout,
    Pressure,
)


@dataclass(frozen=True)
class ChatStream:
    """An event stream that has begun."""

    headers: Mapping[str, str]
    events: AsyncGenerator[bytes, None]
    """The data of each event: a JSON document, at the end `[DONE]`."""


class InferenceClient(ServiceClient):
    """OpenAI-compatible generation, and the adapter registry."""

    service = "inference"

    async def chat(self, body: dict[str, Any], timeout_seconds: float) -> httpx.Response:
        """`POST /v1/chat/completions`, not retried: a generation that was cut is the caller's to repeat.

        Raises ServiceProblem, ServiceUnreachable.
        """
        try:
            response = await self._http.post("/v1/chat/completions", json=body, timeout=timeout_seconds)
        except httpx.TransportError as error:
            raise ServiceUnreachable(f"inference at {self.url}: {type(error).__name__} while generating") from error
        raise_for_problem(response)
        return response

    @asynccontextmanager
    async def chat_stream(self, body: dict[str, Any]) -> AsyncIterator[ChatStream]:
        """`POST /v1/chat/completions` of a body with `stream`, not repeated. Leaving the block ends the engine's work.

        Waits as long as the engine does: the caller keeps the deadline. Raises ServiceProblem, ServiceUnreachable, the
        latter also out of the block when the stream is cut.
        """
        timeout = httpx.Timeout(None, connect=5.0)
        try:
            async with self._http.stream("POST", "/v1/chat/completions", json=body, timeout=timeout) as response:
                if response.status_code >= 400:
                    await response.aread()
                raise_for_problem(response)
                yield ChatStream(response.headers, _event_data(response))
        except httpx.TransportError as error:
            raise ServiceUnreachable(f"inference at {self.url}: {type(error).__name__} while generating") from error

    async def pressure(self) -> Pressure:
        """How busy the engines are, at most a second old. Raises ServiceProblem, ServiceUnreachable."""
        return await self.call("GET", "/v1/pressure", Pressure)

    async def publish(self, name: str, request: AdapterRequest) -> Adapter:
        """Load, probe, flip to ready. Raises ServiceProblem when refused. Needs the `train` scope."""
        return await self.call("PUT", f"/v1/adapters/{name}", Adapter, request)

    async def adapter(self, name: str) -> Adapter:
        """One adapter."""
        return await self.call("GET", f"/v1/adapters/{name}", Adapter)

    async def adapters(self) -> AdapterList:
        """All adapters, newest first, and the base's served name."""
        return await self.call("GET", "/v1/adapters", AdapterList)

    async def remove(self, name: str) -> None:
        """Unload and forget it."""
        await self.send("DELETE", f"/v1/adapters/{name}")

    async def files(self, name: str, layout: Layout) -> bytes:
        """A tar of its two files."""
        return (await self.send("GET", f"/v1/adapters/{name}/files", params={"layout": layout})).content

    async def pin(self, name: str, pinned: bool = True) -> Adapter:
        """Whether it may be unloaded to make room."""
        return await self.call("PUT" if pinned else "DELETE", f"/v1/adapters/{name}/pin", Adapter)

    async def aliases(self) -> AliasList:
        """All aliases, by name."""
        return await self.call("GET", "/v1/aliases", AliasList)

    async def move_alias(self, name: str, request: AliasRequest) -> Alias:
        """Let an alias name a policy that was measured to be better. Needs the `admin` scope."""
        return await self.call("PUT", f"/v1/aliases/{name}", Alias, request)

    async def roll_back_alias(self, name: str) -> AliasList:
        """Undo its newest move; what all aliases name then. Needs the `admin` scope."""
        return await self.call("POST", f"/v1/aliases/{name}/rollback", AliasList)


async def _event_data(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """vLLM's events are one `data:` line each; every other line of the format is passed over."""
    async for line in split_lines(response):
        if line.startswith(b"data:"):
            yield line.removeprefix(b"data:").strip()
