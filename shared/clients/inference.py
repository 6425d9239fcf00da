"""Client of the inference gateway: generation and adapters."""

from typing import Any

import httpx

from shared.clients.base import ServiceClient, ServiceUnreachable, raise_for_problem
from shared.contracts.inference import Adapter, AdapterList, AdapterRequest


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
