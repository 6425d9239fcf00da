"""Rollout and inference as the trainer sees them, over real HTTP: real samples of the real adapters, scripted failures.

Samples come from transformers, rewards from the reply's first token, and an adapter is `ready` only when its digest
and its probe agree with what the publisher claims. What the contracts promise is kept: a batch's rows are drawn once
a step, older attempts get 409, publishing is idempotent.
"""

import copy
import math
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cli.stack.home import free_ports
from shared.artifacts import adapter_digest, fetch_adapter
from shared.contracts.inference import Adapter, AdapterKind, AdapterRequest, AdapterState, Probe, ProbeResult
from shared.contracts.measuring import Report
from shared.contracts.rollout import BatchGroup, BatchRequest, BatchSample, Sampling, SamplingRequest, SamplingState
from shared.contracts.verifier import FinishReason, Status
from shared.errors import Conflict
from shared.ids import parse_served_name
from shared.statistics import pass_at_k
from tests.models import logprobs_of
from tests.trainer.peer_reports import interval, report_of, sampling_of
from tests.trainer.sampling import draw, load_tokenizer, prompt_of

HOLDOUT_TASKS = 10
BAND_TASKS = [f"t{number}" for number in range(10)]


@dataclass
class Script:
    """What goes wrong, and how often."""

    unavailable: int = 0
    """Answer 503 to this many batch calls."""
    unserved: int = 0
    """Then answer to this many that their policy lost its slot."""
    unrouted: int = 0
    """Then answer 404 to this many, as Ray's proxy does that was just started."""
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
    equal_tasks: set[str] = field(default_factory=set)
    """Tasks whose samples all earn the same."""
    lose_calls: int = 0
    """Lose every sample of this many batch calls."""
    lose_reason: str = "engine_unreachable"
    temperature: float = 1.0
    """The engine samples at this one, whatever it is asked for."""
    ends: bool = True
    """False: the budget cuts replies that have not ended."""
    turns: int = 1
    """More: the engine does not stop at the end of turn."""
    prose: bool = False
    """Replies without reward hold no statement."""
    greedy_base: bool = False
    """The base gives each task the same reply every time."""


class Peers:
    """The server and what it saw."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.model = model
        self.script = Script()
        self.release = threading.Event()
        self.held = threading.Event()
        self.attempts: dict[str, int] = {}
        self.batches: dict[tuple[str, int, int], list[BatchGroup]] = {}
        """By (run, step, refill)."""
        self.evaluations: dict[str, SamplingRequest] = {}
        self.reports: dict[str, Report] = {}
        self.requests: list[BatchRequest] = []
        self.adapters: dict[str, Adapter] = {}
        self.publishes: list[str] = []
        self.folder = Path(tempfile.mkdtemp())
        self._base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        """Loaded once: while one thread loads, torch's defaults are not the others'."""
        self._computing = threading.Lock()
        self.tokenizer = load_tokenizer(model)
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"

    def wait(self) -> None:
        """Hold the caller until `release`."""
        self.held.set()
        assert self.release.wait(60)

    def sample(self, request: BatchRequest) -> list[BatchGroup]:
        """The groups of a step, drawn once."""
        key = (request.run_id, request.step, request.refill)
        if self.script.lose_calls:
            self.script.lose_calls -= 1
            return [lost_group(request, task_id) for task_id in request.task_ids]
        with self._computing:
            if key not in self.batches:
                model, digest = self._policy(request.policy)
                assert digest == request.adapter_digest
                self.batches[key] = [self._group(request, task_id, model, digest) for task_id in request.task_ids]
        return self.batches[key]

    def _policy(self, policy: str) -> tuple[Any, str]:
        if policy == "base":
            return self._base, "base"
        run_id, step = policy.split("@")
        (adapter,) = [a for a in self.adapters.values() if (a.run_id, a.step) == (run_id, int(step))]
        return self._adapted(self.folder / adapter.name), adapter.digest

    def _adapted(self, folder: Path) -> Any:
        from peft import PeftModel

        with torch.random.fork_rng():  # PEFT draws when it loads, and the trainer may live in this process
            return PeftModel.from_pretrained(copy.deepcopy(self._base), str(folder)).eval()

    def _group(self, request: BatchRequest, task_id: str, model: Any, digest: str) -> BatchGroup:
        prompt_ids = prompt_of(self.tokenizer, task_id)
        script, seed = self.script, request.seed + int(task_id[1:])
        end_id = self.tokenizer.eos_token_id
        replies = draw(
            model,
            prompt_ids,
            request.k,
            request.max_tokens,
            end_id,
            seed,
            temperature=script.temperature,
            ends=script.ends,
        )
        for _ in range(script.turns - 1):
            replies = [
                (ids + more[0], logprobs + more[1])
                for ids, logprobs in replies
                for more in draw(model, prompt_ids + ids, 1, request.max_tokens, end_id, seed)
            ]
        samples = []
        equal = request.step in script.equal_rewards or task_id in script.equal_tasks
        for index, (ids, logprobs) in enumerate(replies):
            lost = (request.step, index) in script.lose
            right = bool(ids[0] % 2) and not equal
            wrong = Status.NO_SQL if script.prose else Status.MISMATCH
            ended = ids[-1] == end_id
            samples.append(
                BatchSample(
                    sample_index=index,
                    completion_ids=[] if lost else ids,
                    logprobs=[] if lost else logprobs,
                    reward=None if lost else float(right),
                    status=Status.UNSCORABLE if lost else Status.MATCH if right else wrong,
                    finish_reason=FinishReason.ABORT if lost else FinishReason.STOP if ended else FinishReason.LENGTH,
                    adapter_digest="someone-else" if self.script.other_policy else digest,
                )
            )
        return BatchGroup(task_id=task_id, prompt_ids=prompt_ids, samples=samples)

    def evaluate(self, request: SamplingRequest) -> Report:
        """Real replies of the policy on the tasks asked for, or on ten of the holdout; pass@1 and pass@k of them."""
        with self._computing:
            return self._evaluate(request)

    def _evaluate(self, request: SamplingRequest) -> Report:
        script = self.script
        model, digest = self._policy(request.policy)
        holdout = request.task_ids is None
        rates: list[tuple[int, int]] = []
        for task_id in [f"t{100 + number}" for number in range(HOLDOUT_TASKS)] if holdout else request.task_ids or []:
            prompt_ids = prompt_of(self.tokenizer, task_id)
            temperature = 0.01 if script.greedy_base and request.policy == "base" else request.parameters.temperature
            replies = draw(
                model, prompt_ids, request.parameters.k, 12, self.tokenizer.eos_token_id, 7, temperature=temperature
            )
            right = sum(ids[0] % 2 for ids, _ in replies)
            rates.append((len(replies), right))
        single, best = ([pass_at_k(n, c, k) for n, c in rates] for k in (1, request.parameters.k))
        return report_of(request, digest, interval(single), interval(best))

    def measure(self, request: SamplingRequest) -> None:
        """Evaluate in the background, as the rollout service does."""
        self.reports[request.sampling_id] = self.evaluate(request)

    def sampling(self, sampling_id: str) -> Sampling:
        """An evaluation: done, under way, or waiting for its adapter to be served."""
        request = self.evaluations[sampling_id]
        served = next((a for a in self.adapters.values() if f"{a.run_id}@{a.step}" == request.policy), None)
        state = SamplingState.RUNNING
        if sampling_id in self.reports:
            state = SamplingState.DONE
        elif served and served.state is AdapterState.UNLOADED:
            state = SamplingState.PAUSED
        return sampling_of(request, state, served.name if served else request.policy)

    def publish(self, name: str, request: AdapterRequest) -> Adapter:
        """Serve an adapter once digest and probe are right."""
        self.publishes.append(name)
        if name in self.adapters and request.probe is None:
            self.adapters[name] = self.adapters[name].model_copy(update={"state": AdapterState.READY})
            return self.adapters[name]
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

        def scored(model: Any) -> list[float]:
            found = logprobs_of(model, ids)
            return [v for values, sequence in zip(found, sequences, strict=True) for v in values[sequence.start - 1 :]]

        def mean_difference(left: list[float], right: list[float]) -> float:
            return math.fsum(abs(a - b) for a, b in zip(left, right, strict=True)) / len(left)

        with self._computing:
            served, base = scored(self._adapted(folder)), scored(self._base)
        return ProbeResult(
            served_minus_publisher=mean_difference(served, own),
            base_minus_publisher=mean_difference(base, own),
            served_minus_base=mean_difference(served, base),
            tokens=len(own),
        )


def lost_group(request: BatchRequest, task_id: str) -> BatchGroup:
    """A group of which nothing came."""
    lost = {
        "completion_ids": [],
        "logprobs": [],
        "reward": None,
        "status": Status.UNSCORABLE,
        "finish_reason": FinishReason.ABORT,
        "adapter_digest": "",
    }
    samples = [BatchSample(sample_index=index, **lost) for index in range(request.k)]
    return BatchGroup(task_id=task_id, prompt_ids=[], samples=samples)
