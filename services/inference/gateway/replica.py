"""One vLLM replica: what it serves now, how busy it is, and the few calls the gateway makes of it."""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from pydantic import ValidationError

from services.inference.gateway.engine_metrics import EngineLoad, read_load
from shared.contracts.base import Problem
from shared.contracts.inference import ProbeSequence

log = logging.getLogger(__name__)

CONTROL_SECONDS = 60.0
"""Longest wait for a load, an unload or a probe: the engine may be generating."""

LOOK_SECONDS = 20.0
"""Longest wait for its models or metrics, which need only its server: one that takes longer is stuck."""


CONNECT_SECONDS = 5.0

KEEPALIVE_SECONDS = 2.0
"""Less than the 5 s after which uvicorn, and so vLLM, closes an idle connection: a request must not meet that."""

NO_ADDED_HEADERS = ("accept", "accept-encoding", "user-agent", "content-type")
"""What the HTTP client would add to a request that is passed on as it came."""

Broken = aiohttp.ClientError | TimeoutError
BROKEN = (aiohttp.ClientError, TimeoutError)
"""What the HTTP client raises when no whole answer came."""


class EngineUnreachable(Exception):
    """The replica gave no answer; the message says since when and what to do."""


class EngineRefused(Exception):
    """The replica answered with an error; the message is its own."""


class Replica:
    """One engine. `proven` holds the adapters that passed their probe in the engine process running now."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.name = urlsplit(self.url).netloc
        """host:port."""
        self.up = False
        self.leaving = False
        """Discovery no longer lists it: its requests end, new ones go elsewhere."""
        self.models: frozenset[str] = frozenset()
        self.proven: set[str] = set()
        self.in_flight = 0
        """Sequences of this gateway's that it has."""
        self.engine_load = EngineLoad()
        self._fault = "not asked yet"
        self._own_error = ""
        """What its supervisor said that it ended with."""
        self._since = time.monotonic()
        self._http = aiohttp.ClientSession(
            base_url=self.url,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
            auto_decompress=False,
            raise_for_status=False,
        )

    @property
    def state(self) -> str:
        """For people: whether it answers, since when, and the engine's own error."""
        if self.up:
            return f"engine {self.url} answers"
        own = f"; {self._own_error}" if self._own_error else ""
        return f"engine {self.url} does not answer ({self._fault}{own}) for {time.monotonic() - self._since:.0f} s"

    async def close(self) -> None:
        """Close its connections."""
        await self._http.close()

    async def refresh(self) -> None:
        """Ask which models it serves. A restarted engine lists no adapter, so none is proven there any more.

        Only this makes a replica `up`: after a broken connection nobody knows which process answers next.
        """
        try:
            answer = await self._call("GET", "/v1/models", seconds=LOOK_SECONDS)
            models = frozenset(model["id"] for model in json.loads(answer)["data"])
        except EngineUnreachable:
            return
        except (EngineRefused, ValueError, KeyError, TypeError) as error:
            self._down(f"no list of models: {type(error).__name__}: {error}")
            return
        self.models = models
        self.proven &= models
        if not self.up:
            self.up, self._own_error, self._since = True, "", time.monotonic()
            log.info("%s", self.state)

    async def measure(self) -> None:
        """Note how busy it is; when it does not tell, the last numbers stay."""
        with suppress(EngineUnreachable, EngineRefused):
            self.engine_load = read_load(await self.metrics())

    async def metrics(self) -> str:
        """vLLM's own metrics, Prometheus' text format. Raises EngineUnreachable, EngineRefused."""
        return (await self._call("GET", "/metrics", seconds=LOOK_SECONDS)).decode()

    async def version(self) -> str:
        """vLLM's version as the engine reports it. Raises EngineUnreachable, EngineRefused."""
        return str(json.loads(await self._call("GET", "/version"))["version"])

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
        choices = json.loads(await self._call("POST", "/v1/completions", body))["choices"]
        found = []
        for choice, sequence in zip(sorted(choices, key=lambda c: int(c["index"])), sequences, strict=True):
            by_position = choice["prompt_logprobs"]  # [None, {token id: {"logprob": …}}, …]
            scored = range(sequence.start, len(sequence.token_ids))
            found.append([float(by_position[at][str(sequence.token_ids[at])]["logprob"]) for at in scored])
        return found

    @contextmanager
    def busy(self, sequences: int) -> Iterator[None]:
        """Count a generation in flight."""
        self.in_flight += sequences
        try:
            yield
        finally:
            self.in_flight -= sequences

    async def forward(self, path: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        """Send a generation on and return as soon as its headers are here; the caller closes it.

        Raises EngineUnreachable.
        """
        try:
            return await self._http.post(
                path,
                data=body,
                headers=headers,
                skip_auto_headers=NO_ADDED_HEADERS,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            )
        except BROKEN as error:
            raise self.lost(error) from error

    def lost(self, error: Broken) -> EngineUnreachable:
        """Note that a connection broke: nothing goes there until the next look finds it, and what it then serves."""
        self._down(type(error).__name__)
        return EngineUnreachable(f"{self.state}. Its supervisor restarts it (about 20 s); adapters are loaded again")

    def _down(self, fault: str) -> None:
        if self.up:
            self._since = time.monotonic()
            log.warning("engine %s is away: %s", self.url, fault)
        self.up, self._fault = False, fault
        self.models, self.engine_load = frozenset(), EngineLoad()

    async def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None, seconds: float = CONTROL_SECONDS
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._http.request(method, path, json=body, timeout=timeout) as response:
                content = await response.read()
        except BROKEN as error:
            slow = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
            if slow and seconds > LOOK_SECONDS:  # it may be generating
                raise EngineUnreachable(f"{self.state}, but not to {path} within {seconds:.0f} s") from error
            raise self.lost(error) from error
        text = content[:500].decode(errors="replace")
        if response.content_type == "application/problem+json":  # its supervisor's: vLLM sends none
            self._own_error = _detail(content)
            self._down(f"HTTP {response.status}")
            raise EngineUnreachable(self.state)
        if response.status >= 500:  # adapters are checked before: this is the engine's own failure
            raise EngineUnreachable(f"{self.state}, {path} with HTTP {response.status}: {text}")
        if response.status >= 400:
            raise EngineRefused(f"{path}: HTTP {response.status}: {text}")
        return content


def _detail(content: bytes) -> str:
    try:
        return Problem.model_validate_json(content).detail
    except ValidationError:
        return content[:500].decode(errors="replace")
