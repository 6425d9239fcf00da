"""After each optimizer step: seal the checkpoint, publish its adapter, log the step, obey a stop. In this order.

A kill before the seal loses this step's update: its samples are replayed from the ledger. A kill after it loses
nothing: the seal holds the step's figures, and the next attempt publishes and logs what is missing.
"""

import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from services.trainer.checkpoints import Checkpoint, RunFolder
from services.trainer.figures import BatchFigures
from services.trainer.learner import GrpoLearner
from services.trainer.publisher import Policy, Publisher
from services.trainer.records import RunRecords
from services.trainer.remote import Batch
from shared.contracts.inference import ProbeResult
from shared.contracts.trainer import Step, StepSeconds


@dataclass
class StepInProgress:
    """What is known of the step that runs now."""

    started: float = field(default_factory=time.monotonic)
    figures: BatchFigures | None = None
    batch: Batch | None = None
    loss: float = 0.0
    grad_norm: float = 0.0


class StepRecorder(TrainerCallback):  # type: ignore[misc]  # transformers ships no types here
    """Keeps checkpoints, published adapters and the log in step."""

    def __init__(self, folder: RunFolder, publisher: Publisher, records: RunRecords) -> None:
        self.now = StepInProgress()
        self.learner: GrpoLearner
        self._folder = folder
        self._publisher = publisher
        self._records = records

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.now = StepInProgress()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if logs and "grad_norm" in logs:  # the summary at the end of training has none
            self.now.loss, self.now.grad_norm = float(logs["loss"]), float(logs["grad_norm"])

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        checkpoint = self._folder.seal(state.global_step, self._learnt())
        if self.publish_and_log(checkpoint):
            control.should_training_stop = True

    def publish_and_log(self, checkpoint: Checkpoint) -> bool:
        """Serve and log what `checkpoint` holds and the learner has loaded. Returns whether to stop."""
        policy = self._publisher.publish(checkpoint, self.learner.accelerator.unwrap_model(self.learner.model))
        return self._records.add_step(step_record(checkpoint, policy, self._records.attempt))

    def _learnt(self) -> dict[str, Any]:
        """The step's record as far as it is known before its adapter is published."""
        now = self.now
        assert now.figures is not None and now.batch is not None  # a step that was saved had a batch
        total = time.monotonic() - now.started
        sample = min(now.batch.seconds, now.batch.end.sample_seconds)
        seconds = {
            "sample": sample,
            "verify": now.batch.seconds - sample,  # what of the wait was not hidden behind sampling
            "learn": total - now.batch.seconds,
            "total": total,
        }
        measured = {"loss": now.loss, "grad_norm": now.grad_norm, "seconds": seconds}
        return asdict(now.figures) | asdict(self.learner.agreement) | measured


def step_record(checkpoint: Checkpoint, policy: Policy, attempt: int) -> Step:
    """A step's log record, from what its checkpoint's seal holds and what its publishing showed."""
    record = dict(checkpoint.record)
    seconds = record.pop("seconds")
    return Step(
        **record,
        step=checkpoint.step,
        adapter_name=policy.served_name,
        probe=probe_line(policy.probe),
        seconds=StepSeconds(
            sample=seconds["sample"],
            verify=seconds["verify"],
            learn=seconds["learn"],
            publish=policy.publish_seconds,
            total=seconds["total"] + policy.publish_seconds,
        ),
        attempt=attempt,
        at=datetime.now(UTC),
    )


def probe_line(probe: ProbeResult | None) -> str:
    """`|served-trainer| / |base-trainer|` in nats per token."""
    if probe is None:
        return ""
    return f"{probe.served_minus_publisher:.2g} / {probe.base_minus_publisher:.2g}"
