"""Processes and requests that the inference tests share."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from shared.artifacts import adapter_digest
from shared.auth import read_token
from shared.clients.inference import InferenceClient
from shared.contracts.inference import AdapterKind, AdapterRequest, Probe, ProbeSequence
from shared.ids import served_name
from tests.models import make_adapter, token_logprobs

START_SECONDS = 240.0
SLOTS = 3
VOCABULARY = 500
"""Ids below this are ordinary tokens of the tiny model."""


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Ask until it is so; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


def answers(url: str) -> bool:
    """True when it answers 200."""
    try:
        return httpx.get(url, timeout=5.0).status_code == 200
    except httpx.TransportError:
        return False


@dataclass
class Service:
    """One of our programs, in a process group of its own."""

    module: str
    url: str
    ready_path: str
    environment: dict[str, str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self) -> None:
        """Start; returns at once."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                env=os.environ | self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until its ready path answers 200."""

        def ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            return answers(self.url + self.ready_path)

        wait_until(ready, START_SECONDS, f"{self.module} ready, log {self.log}")

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the process and its children; wait for the process."""
        assert self.process is not None
        os.killpg(self.process.pid, number)
        self.process.wait(timeout=60)

    def stop(self) -> None:
        """End it and whatever it left behind."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(timeout=60)
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return


@dataclass(frozen=True)
class Gateway:
    """A running gateway in front of the session's engine."""

    service: Service
    engine: Service
    tokens_file: Path
    model: Path
    folder: Path

    @property
    def url(self) -> str:
        return self.service.url

    def token(self, name: str = "user") -> str:
        return read_token(self.tokens_file, name)

    def client(self, token_name: str = "user") -> InferenceClient:
        return InferenceClient(self.url, self.token(token_name), timeout_seconds=120.0)

    def http(self, token_name: str = "user") -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.token(token_name)}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=120.0)

    async def engine_models(self) -> set[str]:
        """What the engine itself lists."""
        async with httpx.AsyncClient(base_url=self.engine.url) as http:
            return {entry["id"] for entry in (await http.get("/v1/models")).json()["data"]}

    def adapter(self, seed: int, scale: float = 0.05) -> Path:
        """A PEFT adapter of the served base with a random B of this scale, made once."""
        folder = self.folder / f"adapter-{seed}-{scale}"
        return folder if folder.exists() else make_adapter(self.model, folder, seed=seed, scale=scale)


def sequences(count: int = 3, length: int = 24, seed: int = 0) -> list[list[int]]:
    """Random token ids."""
    draw = random.Random(seed)
    return [[draw.randrange(3, VOCABULARY) for _ in range(length)] for _ in range(count)]


def probe_of(model: Path, adapter: Path | None, start: int = 8) -> Probe:
    """A probe with the log-probabilities that transformers and PEFT find."""
    drawn = sequences()
    found = token_logprobs(model, drawn, adapter)
    return Probe(
        sequences=[
            ProbeSequence(token_ids=ids, start=start, logprobs=values[start - 1 :])
            for ids, values in zip(drawn, found, strict=True)
        ]
    )


def publication(
    gateway: Gateway, folder: Path, run_id: str, step: int = 1, kind: AdapterKind = AdapterKind.TRAINED
) -> tuple[str, AdapterRequest]:
    """Name and request that publish `folder` as it is."""
    digest = adapter_digest(folder)
    probe = probe_of(gateway.model, folder)
    request = AdapterRequest(uri=folder.as_uri(), base="base", digest=digest, kind=kind, probe=probe)
    return served_name(run_id, step, digest), request


def prompt_logprobs(choice: dict[str, list[dict[str, dict[str, float]] | None]]) -> list[float]:
    """Log-probabilities of tokens 1 to the end from a vLLM choice with `prompt_logprobs: 0`."""
    return [next(iter(entry.values()))["logprob"] for entry in choice["prompt_logprobs"] if entry is not None]


def mean_gap(left: Sequence[float], right: Sequence[float]) -> float:
    """Mean absolute difference."""
    return sum(abs(a - b) for a, b in zip(left, right, strict=True)) / len(left)
