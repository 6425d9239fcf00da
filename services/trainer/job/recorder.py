"""After each optimizer step: seal the checkpoint, publish its adapter, log the step, obey a stop. In this order.

A kill before the seal loses this step's update: its samples are replayed from the ledger. A kill after it loses
nothing: the seal holds the step's figures, and the next attempt publishes and logs what is missing. The artifact store
gets a copy of the checkpoint while the next step is under way.
"""

import math
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

from services.trainer.failures import RunFailed
from services.trainer.job.checkpoints import Checkpoint
from services.trainer.job.drawing import Drawn
from services.trainer.job.grounds import Grounds
from services.trainer.job.publisher import Policy
from services.trainer.job.workers import WorkersCallback
from shared.contracts.inference import ProbeResult
from shared.contracts.trainer import EventKind, Step, StepSeconds


@dataclass
class StepInProgress:
    """What is known of the step that runs now."""

    started: float = field(default_factory=time.monotonic)
    figures: dict[str, Any] = field(default_factory=dict)
    drawn: Drawn | None = None
    waited: float = 0.0
    """Seconds until the step's samples were there."""
    loss: float = 0.0
    grad_norm: float = 0.0


class StepRecorder(WorkersCallback):
    """Keeps checkpoints, published adapters and the log in step."""

    learner: Trainer

    def __init__(self, grounds: Grounds) -> None:
        self.now = StepInProgress()
        self._folder = grounds.folder
        self._copies = grounds.copies
        self._publisher = grounds.publisher
        self._records = grounds.records
        self._watch = grounds.watch
        self._reporting = grounds.reporting
        self._probe_sum = 0.0
        self._copies_failed = False

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

    def before_save(self) -> None:
        """The probe's log-probabilities of the policy that is saved."""
        self._probe_sum = self._publisher.score(self.learner.model)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        kept = self.kept(state.global_step) | {"probe": self._publisher.probe}
        refuse_broken(state.global_step, kept["figures"] | {"probe": self._probe_sum})
        checkpoint = self._folder.seal(state.global_step, kept)
        if self.publish_and_log(checkpoint):
            control.should_training_stop = True
        self._warn(self._copies.begin(checkpoint))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._warn(self._copies.finish())

    def kept(self, step: int) -> dict[str, Any]:
        """What the seal of `step` holds: its `figures`, and what the next attempt needs beside the learner's own."""
        drawn, before = self.now.drawn, step - 1
        assert drawn is not None  # a step that was saved had samples
        return {
            "figures": self._learnt(drawn),
            "place": asdict(drawn.place),
            "before": self._publisher.policy(before).saved() if before else None,
        }

    def catch_up(self, checkpoint: Checkpoint) -> bool:
        """Serve an earlier attempt's checkpoint, which the learner has loaded; log its step if a kill came in between.

        Returns whether to stop.
        """
        if not self._records.has_step(checkpoint.step):
            return self.publish_and_log(checkpoint)
        self._publisher.publish(checkpoint, self.learner.accelerator.unwrap_model(self.learner.model))
        return False

    def publish_and_log(self, checkpoint: Checkpoint) -> bool:
        """Serve and log what `checkpoint` holds and the learner has loaded. Returns whether to stop."""
        policy = self._publisher.publish(checkpoint, self.learner.accelerator.unwrap_model(self.learner.model))
        step = step_record(checkpoint, policy, self._records.attempt)
        asked_to_stop = self._records.add_step(step)
        stopped = self._watch.after(step, self.now.drawn)
        self._reporting.step(step, self._watch.firing, self.learner)
        return stopped or asked_to_stop

    def _warn(self, fault: str) -> None:
        """Tell a fault of the copies once, until one succeeds."""
        if fault and not self._copies_failed:
            self._watch.tell(EventKind.WARNED, fault)
        self._copies_failed = bool(fault)

    def _learnt(self, drawn: Drawn) -> dict[str, Any]:
        """The step's record as far as it is known before its adapter is published."""
        now = self.now
        total = time.monotonic() - now.started
        sample = min(now.waited, drawn.sample_seconds)
        seconds = {
            "sample": sample,
            "verify": now.waited - sample,  # what of the wait was not hidden behind sampling
            "learn": total - now.waited,
            "total": total,
            "generation": drawn.seconds,
        }
        return {
            **now.figures,
            **asdict(self.learner.agreement),
            "staleness": self.learner.state.global_step - 1 - drawn.policy.step,
            "loss": now.loss,
            "grad_norm": now.grad_norm,
            "seconds": seconds,
        }


def refuse_broken(step: int, figures: dict[str, Any]) -> None:
    """Raises RunFailed when a figure is no number any more: the weights of that update are of no use."""
    broken = [name for name, value in figures.items() if isinstance(value, float) and not math.isfinite(value)]
    if broken:
        raise RunFailed(
            f"step {step}: {', '.join(broken)} is no finite number, so its update was not kept. Adapters of "
            "earlier steps are: start a new run with a lower `learning_rate`, `start_from` the last good one"
        )


def step_record(checkpoint: Checkpoint, policy: Policy, attempt: int) -> Step:
    """A step's log record, from what its checkpoint's seal holds and what its publishing showed."""
    record = dict(checkpoint.record["figures"])
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
            generation=seconds["generation"],
        ),
        attempt=attempt,
        at=datetime.now(UTC),
    )


def probe_line(probe: ProbeResult | None) -> str:
    """`|served-trainer| / |base-trainer|` in nats per token."""
    if probe is None:
        return ""
    return f"{probe.served_minus_publisher:.2g} / {probe.base_minus_publisher:.2g}"
