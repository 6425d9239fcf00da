"""One vLLM replica: what it serves now, and the few calls the gateway makes of it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from shared.contracts.inference import ProbeSequence

CONTROL_SECONDS = 60.0
"""Longest wait for a load, an unload, a probe or a list of models: the engine may be generating."""


class EngineUnreachable(Exception):
    """The replica gave no answer; the message says since when and what to do."""


class EngineRefused(Exception):
    """The replica answered with an error; the message is its own."""


class Replica:
    """One engine. `proven` holds the adapters that passed their probe in the engine process running now."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.up = False
        self.models: frozenset[str] = frozenset()
        self.proven: set[str] = set()
        self.in_flight = 0
        self._fault = "not asked yet"
        self._since = time.monotonic()
        self._http = httpx.AsyncClient(
            base_url=self.url,
            timeout=httpx.Timeout(CONTROL_SECONDS, connect=5.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=2.0),
        )

    @property
    def state(self) -> str:
        """For people: whether it answers, and since when."""
        seconds = time.monotonic() - self._since
        return f"engine {self.url} " + (
            "answers" if self.up else f"does not answer ({self._fault}) for {seconds:.0f} s"
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def refresh(self) -> None:
        """Ask which models it serves; adapters it no longer lists are no longer proven."""
        try:
            answer = await self._call("GET", "/v1/models")
        except (EngineUnreachable, EngineRefused):
            return
        self.models = frozenset(model["id"] for model in answer.json()["data"])
        self.proven &= self.models

    async def version(self) -> str:
        """vLLM's version as the engine reports it. Raises EngineUnreachable, EngineRefused."""
        return str((await self._call("GET", "/version")).json()["version"])

    async def load(self, name: str, folder: Path) -> None:
        """Load an adapter. Raises EngineUnreachable, EngineRefused."""
        await self._call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        self.models |= {name}

    async def unload(self, name: str) -> None:
        """Unload an adapter; one that is not loaded is fine. Raises EngineUnreachable."""
        self.proven.discard(name)
        with suppress(EngineRefused):  # not loaded: 404
            await self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        self.models -= {name}

    async def logprobs(self, model: str, sequences: Sequence[ProbeSequence]) -> list[list[float]]:
        """Teacher-forced log-probabilities of the scored tokens. Raises EngineUnreachable, EngineRefused."""
        body = {
            "model": model,
            "prompt": [sequence.token_ids for sequence in sequences],
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
        }
        choices = (await self._call("POST", "/v1/completions", body)).json()["choices"]
        found = []
        for choice, sequence in zip(sorted(choices, key=lambda c: int(c["index"])), sequences, strict=True):
            by_position = choice["prompt_logprobs"]  # [None, {token id: {"logprob": …}}, …]
            scored = range(sequence.start, len(sequence.token_ids))
            found.append([float(by_position[at][str(sequence.token_ids[at])]["logprob"]) for at in scored])
        return found

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count a generation in flight."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    async def forward(self, path: str, headers: Mapping[str, str], body: bytes) -> httpx.Response:
        """Send a generation on and return as soon as its headers are here; the caller closes it.

        Raises EngineUnreachable.
        """
        request = self._http.build_request(
            "POST", path, headers=dict(headers), content=body, timeout=httpx.Timeout(None, connect=5.0)
        )
        try:
            return await self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise self.lost(error) from error

    def lost(self, error: Exception) -> EngineUnreachable:
        """Note that it does not answer; nothing it had loaded is known to be there when it does again."""
        if self.up:
            self._since = time.monotonic()
        self.up, self._fault = False, type(error).__name__
        self.models = frozenset()
        self.proven.clear()
        return EngineUnreachable(f"{self.state}. Its supervisor restarts it (about 20 s); adapters are loaded again")

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        try:
            response = await self._http.request(method, path, json=body)
        except httpx.TimeoutException as error:
            raise EngineUnreachable(f"{self.state}, but not to {path} within {CONTROL_SECONDS:.0f} s") from error
        except httpx.TransportError as error:
            raise self.lost(error) from error
        if not self.up:
            self.up, self._since = True, time.monotonic()
        if response.status_code >= 500:  # adapters are checked before: this is the engine's own failure
            raise EngineUnreachable(f"{self.state}, {path} with HTTP {response.status_code}: {response.text[:500]}")
        if response.status_code >= 400:
            raise EngineRefused(f"{path}: HTTP {response.status_code}: {response.text[:500]}")
        return response
