"""A run's figures in the trackers its owner follows, through the callbacks that transformers ships for them.

They get what TRL logs and, under `sqlclimb/`, each step's own record: nothing of a prompt, a reply or a gold. Keys and
addresses of their services come from the job's environment, by the names that each of them documents. A tracker that
fails is told once and left out from then on: a run is worth more than its picture.
"""

import copy
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import INTEGRATION_TO_CALLBACK, TensorBoardCallback, WandbCallback

from shared.contracts.run_config import GuardName, Tracker
from shared.contracts.trainer import EventKind, Step
from shared.telemetry import redact

log = logging.getLogger(__name__)

PREFIX = "sqlclimb/"
"""Keeps our figures apart from TRL's, which has a `reward` of its own."""

PROJECT = "sqlclimb"


def step_figures(step: Step, firing: Mapping[GuardName, float]) -> dict[str, float]:
    """Every number of a step's record by its name, and the metric of each guard that fires on it."""
    record = step.model_dump(exclude={"step", "attempt"})
    parts = {
        "": record,
        "seconds/": record.pop("seconds"),
        "lost/": record.pop("lost"),
        "supervised/": record.pop("supervised") or {},
        "guards/": {name.value: value for name, value in firing.items()},
    }
    return {
        f"{PREFIX}{folder}{name}": float(value)
        for folder, values in parts.items()
        for name, value in values.items()
        if isinstance(value, int | float)
    }


def _finish(tracker: Any) -> None:
    """Transformers leaves W&B to finish when the process exits, which Ray cuts short."""
    if isinstance(tracker, WandbCallback):
        tracker._wandb.finish()


class Reporting(TrainerCallback):  # type: ignore[misc]  # transformers ships no types here
    """Passes the log of one attempt on. Runs in one process only."""

    def __init__(
        self, trackers: list[Tracker], run_id: str, folder: Path, tell: Callable[[EventKind, str], None]
    ) -> None:
        """`folder`: the run's own; TensorBoard's files go below it unless TENSORBOARD_LOGGING_DIR says otherwise."""
        if Tracker.WANDB in trackers:
            os.environ.setdefault("WANDB_PROJECT", PROJECT)
            os.environ.setdefault("WANDB_RUN_ID", run_id)  # another attempt goes on with the same picture
            os.environ.setdefault("WANDB_RESUME", "allow")
        if Tracker.MLFLOW in trackers:
            os.environ.setdefault("MLFLOW_EXPERIMENT_NAME", PROJECT)
        self._run_id = run_id
        self._tell = tell
        self._trackers: dict[Tracker, Any] = {}
        for tracker in trackers:
            callback = INTEGRATION_TO_CALLBACK[tracker.value]()
            if isinstance(callback, TensorBoardCallback):
                chosen = callback.logging_dir
                callback.logging_dir = str(Path(chosen) / run_id if chosen else folder / "tensorboard")
            self._trackers[tracker] = callback

    def on_train_begin(self, args: TrainingArguments, *given: Any, **named: Any) -> None:
        """Trackers open their run."""
        self._to_all(lambda tracker: tracker.on_train_begin(self._named(args), *given, **named))

    def on_log(self, args: TrainingArguments, *given: Any, **named: Any) -> None:
        """What TRL logs."""
        self._to_all(lambda tracker: tracker.on_log(self._named(args), *given, **named))

    def on_train_end(self, args: TrainingArguments, *given: Any, **named: Any) -> None:
        """Trackers close their run."""
        self._to_all(lambda tracker: tracker.on_train_end(self._named(args), *given, **named))
        self._to_all(_finish)

    def step(self, step: Step, firing: Mapping[GuardName, float], learner: Trainer) -> None:
        """A step's record, once it is logged. `firing`: the metric of each guard that fires on it."""
        self.on_log(
            learner.args,
            TrainerState(global_step=step.step),
            TrainerControl(),
            logs=step_figures(step, firing),
            model=learner.model,
        )

    def _named(self, args: TrainingArguments) -> TrainingArguments:
        named = copy.copy(args)
        named.run_name, named.project = self._run_id, PROJECT
        return named

    def _to_all(self, call: Callable[[Any], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                call(tracker)
            except Exception as error:  # whatever a tracker's client raises
                log.warning("tracker %s failed", name, exc_info=True)
                del self._trackers[name]
                self._tell(
                    EventKind.WARNED,
                    f"`report_to`: {name} failed and gets no more figures of this attempt; the run goes on, "
                    f"`sqlclimb runs show` has them all ({type(error).__name__}: {redact(str(error))[:300]})",
                )
