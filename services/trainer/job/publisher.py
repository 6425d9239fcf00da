"""Serves each step's adapter: from the checkpoint's files, under a name never used before, proven by a probe."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from services.trainer.failures import RunFailed
from services.trainer.job.checkpoints import Checkpoint
from services.trainer.job.remote import Remote
from services.trainer.job.workers import by_first
from shared.artifacts import ADAPTER_FILES, ArtifactError, adapter_digest, publish_folder
from shared.contracts.inference import AdapterKind, AdapterRequest, Probe, ProbeResult, ProbeSequence
from shared.ids import BASE_DIGEST, BASE_POLICY, served_name

PROBE_SEQUENCES = 4
"""Enough tokens to tell an adapter from noise; the gateway forwards each twice."""

PROBE_TOKENS = 512
"""Longest probe sequence: the end of a longer one is left out."""


@dataclass(frozen=True)
class Policy:
    """What the next batch is drawn from."""

    step: int
    """Updates behind it; 0 is the base."""
    policy: str
    digest: str
    served_name: str = ""
    uri: str = ""
    """In the artifact store; empty for the base."""
    kind: AdapterKind = AdapterKind.TRAINED
    probe: ProbeResult | None = None
    publish_seconds: float = 0.0

    def saved(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return asdict(self) | {"probe": None}

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> "Policy":
        """Inverse of `saved`."""
        return cls(**saved | {"kind": AdapterKind(saved["kind"])})


BASE = Policy(0, BASE_POLICY, BASE_DIGEST)
"""Before the first update the adapter's B is zero: it is the base and is not published."""


class Publisher:
    """Publishes the adapters of one run, one after the other."""

    def __init__(
        self,
        run_id: str,
        base_name: str,
        artifacts: str,
        remote: Remote,
        start: Policy,
        probe: list[dict[str, Any]],
    ) -> None:
        """`probe`: as an earlier attempt chose it, else empty."""
        self._policies = {0: start}
        self._run_id = run_id
        self._base_name = base_name
        self._artifacts = artifacts
        self._remote = remote
        self.probe = probe
        """The run's probe sequences without log-probabilities: the same from its first step to its last."""
        self._scored: list[ProbeSequence] = []
        """The probe of the policy that is published next."""

    @property
    def current(self) -> Policy:
        """The newest policy that is served."""
        return self._policies[max(self._policies)]

    def policy(self, updates: int) -> Policy:
        """The run's policy after that many updates. Raises RunFailed when it is not at hand."""
        if updates not in self._policies:
            raise RunFailed(f"the adapter of step {updates} is not at hand: the run has {sorted(self._policies)}")
        return self._policies[updates]

    def serve_again(self, policy: Policy) -> None:
        """Make sure that an adapter published earlier is served; the base always is. Raises RunFailed."""
        if not policy.uri:
            return
        request = AdapterRequest(uri=policy.uri, base=self._base_name, digest=policy.digest, kind=policy.kind)
        self._remote.publish(policy.served_name, request)
        self._policies[policy.step] = policy

    def choose_probe(self, replies: Sequence[tuple[list[int], list[int]]]) -> None:
        """Fix the probe's sequences, once in a run: some of `replies`, (prompt ids, ids of the policy's own reply)."""
        if self.probe:
            return
        chosen: list[dict[str, Any]] = []
        for prompt, reply in replies:
            tokens, start = (prompt + reply)[:PROBE_TOKENS], len(prompt)
            if start < len(tokens) and tokens not in [entry["token_ids"] for entry in chosen]:
                chosen.append({"token_ids": tokens, "start": start})
        spread = max(1, len(chosen) // PROBE_SEQUENCES)
        self.probe = chosen[::spread][:PROBE_SEQUENCES]

    def score(self, model: Any) -> float:
        """The probe of the policy that is published next, in every worker: sharded weights forward only together.

        Returns the sum of its log-probabilities, which is no finite number where the weights are broken.
        """
        self._scored = scored(by_first(lambda: self.probe), model)
        return sum(value for sequence in self._scored for value in sequence.logprobs)

    def publish(self, checkpoint: Checkpoint, model: Any) -> Policy:
        """Serve the adapter of `checkpoint`, which `model` (a PeftModel) holds and `score` has seen.

        Idempotent. Raises RunFailed.
        """
        started = time.monotonic()
        try:
            digest = adapter_digest(checkpoint.folder)
            name = served_name(self._run_id, checkpoint.step, digest)
            uri = self._store(checkpoint.folder, name)
        except (OSError, ArtifactError) as error:
            raise RunFailed(
                f"the adapter of step {checkpoint.step} could not be stored in {self._artifacts}: {error}. "
                f"It is kept in {checkpoint.folder}; make the store writable and start the run again"
            ) from error
        kind = AdapterKind.CONTROL if is_base(model) else AdapterKind.TRAINED
        request = AdapterRequest(
            uri=uri, base=self._base_name, digest=digest, kind=kind, probe=Probe(sequences=self._scored)
        )
        adapter = self._remote.publish(name, request)
        self._policies[checkpoint.step] = Policy(
            step=checkpoint.step,
            policy=f"{self._run_id}@{checkpoint.step}",
            digest=digest,
            served_name=name,
            uri=uri,
            kind=kind,
            probe=adapter.probe,
            publish_seconds=time.monotonic() - started,
        )
        return self.current

    def _store(self, folder: Path, name: str) -> str:
        with tempfile.TemporaryDirectory() as staging:
            for file in ADAPTER_FILES:
                shutil.copyfile(folder / file, Path(staging) / file)
            return publish_folder(Path(staging), self._artifacts, "runs", self._run_id, "adapters", name)


def scored(chosen: list[dict[str, Any]], model: Any) -> list[ProbeSequence]:
    """The probe's sequences with the model's own log-probabilities."""
    return [
        ProbeSequence(**entry, logprobs=own_logprobs(model, entry["token_ids"])[entry["start"] - 1 :])
        for entry in chosen
    ]


def is_base(model: Any) -> bool:
    """Whether every B is still zero: no group so far had anything to teach. Such an adapter serves as a control."""
    return not any(weight.any() for name, weight in model.named_parameters() if "lora_B" in name)


@torch.no_grad()
def own_logprobs(model: Any, token_ids: list[int]) -> list[float]:
    """The model's log-probabilities (natural, temperature 1, no dropout) of tokens 1 to the end of one sequence."""
    training = model.training
    model.eval()
    try:
        ids = torch.tensor([token_ids], device=model.device)
        logprobs = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
        values: list[float] = logprobs.gather(-1, ids[0, 1:, None]).squeeze(-1).tolist()
        return values
    finally:
        model.train(training)
