"""Rollout and inference as the trainer sees them, over real HTTP: real samples of the real adapters, scripted failures.

Samples come from transformers, rewards from the reply's first token, and an adapter is `ready` only when its digest
and its probe agree with what the publisher claims. What the contracts promise is kept: a batch's rows are drawn once
a step, older attempts get 409, publishing is idempotent.
"""

import contextlib
import math
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from cli.stack.home import free_ports
from shared.artifacts import adapter_digest, fetch_adapter
from shared.auth import Scope, TokenFile
from shared.contracts.inference import (
    Adapter,
    AdapterKind,
    AdapterList,
    AdapterRequest,
    AdapterState,
    Probe,
    ProbeResult,
)
from shared.contracts.measuring import Band
from shared.contracts.rollout import BatchEnd, BatchGroup, BatchRequest, BatchSample
from shared.contracts.verifier import FinishReason, Status
from shared.errors import Conflict, NotFound, Unavailable
from shared.ids import parse_served_name
from shared.web import create_app, needs
from tests.models import token_logprobs
from tests.trainer.sampling import draw, load_tokenizer, prompt_of

BASE_NAME = "tiny"
BAND_TASKS = [f"t{number}" for number in range(10)]


@dataclass
class Script:
    """What goes wrong, and how often."""

    unavailable: int = 0
    """Answer 503 to this many batch calls."""
    cut: int = 0
    """Break this many batch streams after their first group."""
    lose: set[tuple[int, int]] = field(default_factory=set)
    """(step, sample index) of samples that never come."""
    hold_batch: int | None = None
    """The batch of this step waits until `release`."""
    hold_publish: int | None = None
    """Publishing this step's adapter waits until `release`."""
    other_policy: bool = False
    """Samples claim an adapter the trainer did not ask for."""
    refuse_adapters: bool = False
    equal_rewards: set[int] = field(default_factory=set)
    """Steps whose samples all earn the same."""


class Peers:
    """The server and what it saw."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.script = Script()
        self.release = threading.Event()
        self.held = threading.Event()
        self.attempts: dict[str, int] = {}
        self.batches: dict[tuple[str, int], list[BatchGroup]] = {}
        self.requests: list[BatchRequest] = []
        self.adapters: dict[str, Adapter] = {}
        self.publishes: list[str] = []
        self.folder = Path(tempfile.mkdtemp())
        self.tokenizer = load_tokenizer(model)
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"

    def wait(self) -> None:
        """Hold the caller until `release`."""
        self.held.set()
        assert self.release.wait(60)

    def sample(self, request: BatchRequest) -> list[BatchGroup]:
        """The groups of a step, drawn once."""
        key = (request.run_id, request.step)
        if key not in self.batches:
            with torch.random.fork_rng():  # PEFT draws when it loads, and the trainer may live in this process
                model, digest = self._policy(request)
            assert digest == request.adapter_digest
            self.batches[key] = [self._group(request, task_id, model, digest) for task_id in request.task_ids]
        return self.batches[key]

    def _policy(self, request: BatchRequest) -> tuple[Any, str]:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32).eval()
        if request.policy == "base":
            return model, "base"
        run_id, step = request.policy.split("@")
        (adapter,) = [a for a in self.adapters.values() if (a.run_id, a.step) == (run_id, int(step))]
        return PeftModel.from_pretrained(model, str(self.folder / adapter.name)).eval(), adapter.digest

    def _group(self, request: BatchRequest, task_id: str, model: Any, digest: str) -> BatchGroup:
        prompt_ids = prompt_of(self.tokenizer, task_id)
        seed = request.seed + int(task_id[1:])
        replies = draw(model, prompt_ids, request.k, request.max_tokens, self.tokenizer.eos_token_id, seed)
        samples = []
        for index, (ids, logprobs) in enumerate(replies):
            lost = (request.step, index) in self.script.lose
            samples.append(
                BatchSample(
                    sample_index=index,
                    completion_ids=[] if lost else ids,
                    logprobs=[] if lost else logprobs,
                    reward=None if lost else float(ids[0] % 2 and request.step not in self.script.equal_rewards),
                    status=Status.UNSCORABLE if lost else Status.MATCH,
                    finish_reason=FinishReason.ABORT if lost else FinishReason.STOP,
                    adapter_digest="someone-else" if self.script.other_policy else digest,
                )
            )
        return BatchGroup(task_id=task_id, prompt_ids=prompt_ids, samples=samples)

    def publish(self, name: str, request: AdapterRequest) -> Adapter:
        """Serve an adapter once digest and probe are right."""
        self.publishes.append(name)
        parts = parse_served_name(name)
        if self.script.hold_publish == parts.step:
            self.wait()
        folder = fetch_adapter(request.uri, self.folder / name)
        assert adapter_digest(folder) == request.digest
        assert request.probe is not None
        if self.script.refuse_adapters:
            raise Conflict("37 tensors name no module of the base")
        probe = self._probe(request.probe, folder)
        assert probe.served_minus_publisher <= request.probe.tolerance * probe.base_minus_publisher
        assert (request.kind is AdapterKind.TRAINED) == (probe.served_minus_base > 0)
        self.adapters[name] = Adapter(
            name=name,
            run_id=parts.run_id,
            step=parts.step,
            uri=request.uri,
            base=request.base,
            digest=request.digest,
            kind=request.kind,
            state=AdapterState.READY,
            probe=probe,
        )
        return self.adapters[name]

    def _probe(self, claimed: Probe, folder: Path) -> ProbeResult:
        sequences = claimed.sequences
        ids = [sequence.token_ids for sequence in sequences]
        own = [value for sequence in sequences for value in sequence.logprobs]

        def scored(adapter: Path | None) -> list[float]:
            found = token_logprobs(self.model, ids, adapter)
            return [v for values, sequence in zip(found, sequences, strict=True) for v in values[sequence.start - 1 :]]

        def mean_difference(left: list[float], right: list[float]) -> float:
            return math.fsum(abs(a - b) for a, b in zip(left, right, strict=True)) / len(left)

        with torch.random.fork_rng():
            served, base = scored(folder), scored(None)
        return ProbeResult(
            served_minus_publisher=mean_difference(served, own),
            base_minus_publisher=mean_difference(base, own),
            served_minus_base=mean_difference(served, base),
            tokens=len(own),
        )


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield


def _app(peers: Peers, tokens: Path) -> FastAPI:
    app = create_app("peers", TokenFile(tokens), _lifespan, {}, dict)
    app.router.dependencies.append(needs(Scope.TRAIN))

    @app.get("/v1/bands/{band_id}")
    def band(band_id: str) -> Band:
        if band_id not in ("band", "empty", "elsewhere"):
            raise NotFound(f"no band {band_id}")
        return Band(
            band_id=band_id,
            sampling_id="base-train",
            domain="other" if band_id == "elsewhere" else "shop",
            policy="base",
            adapter_digest="base",
            low=0.1,
            high=0.9,
            task_ids=[] if band_id == "empty" else BAND_TASKS,
            considered=20,
            below=5,
            above=5,
        )

    @app.post("/v1/batches")
    def batches(request: BatchRequest) -> StreamingResponse:
        if request.attempt < peers.attempts.get(request.run_id, 0):
            raise Conflict(f"attempt {request.attempt} is over")
        peers.attempts[request.run_id] = request.attempt
        peers.requests.append(request)
        if peers.script.unavailable:
            peers.script.unavailable -= 1
            raise Unavailable("restarting")
        groups = peers.sample(request)
        if peers.script.hold_batch == request.step:
            peers.wait()

        async def lines() -> AsyncIterator[str]:
            for group in reversed(groups):  # any order is allowed
                yield group.model_dump_json() + "\n"
                if peers.script.cut:
                    peers.script.cut -= 1
                    return
            end = BatchEnd(groups=len(groups), sample_seconds=0.01, verify_seconds=0.01, replayed_rows=0)
            yield end.model_dump_json() + "\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    @app.get("/v1/adapters")
    def adapters() -> AdapterList:
        return AdapterList(
            base=BASE_NAME, model=str(peers.model), max_lora_rank=16, adapters=list(peers.adapters.values())
        )

    @app.put("/v1/adapters/{name}")
    def publish(name: str, request: AdapterRequest) -> Adapter:
        return peers.publish(name, request)

    return app


@contextlib.contextmanager
def serving(model: Path, tokens: Path) -> Iterator[Peers]:
    """Peers on a free port, in a thread."""
    peers = Peers(model)
    port = int(peers.url.rpartition(":")[2])
    server = uvicorn.Server(uvicorn.Config(_app(peers, tokens), host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    try:
        yield peers
    finally:
        peers.release.set()
        server.should_exit = True
        thread.join(timeout=10)
