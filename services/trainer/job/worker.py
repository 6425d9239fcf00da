"""What runs in a Ray Train worker: one attempt of a run, and how it ended."""

import logging
import os
from pathlib import Path
from typing import TypedDict

from services.trainer.failures import Fenced, RunFailed
from services.trainer.settings import JobSettings
from shared.contracts.run_config import Method, RunConfig
from shared.contracts.trainer import EventKind, RunState
from shared.telemetry import configure_logging

log = logging.getLogger(__name__)


class WorkerArguments(TypedDict):
    """What the driver hands to each worker; holds no secret."""

    settings_file: str | None
    run_id: str
    attempt: int
    config: dict[str, object]


def train_in_worker(arguments: WorkerArguments) -> None:
    """Train, then write how the run ended: done, stopped, or failed with a sentence. Any other error is the driver's.

    A fenced attempt writes nothing: the run belongs to a newer one.
    """
    configure_logging("trainer-worker", "INFO")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch  # here, so that the driver pickles a function of a module that loads in a moment

    from services.trainer.job.attempt import Attempt
    from services.trainer.job.records import RunRecords
    from services.trainer.job.workers import by_first
    from services.trainer.supervised.attempt import SupervisedAttempt

    settings = JobSettings.read(Path(arguments["settings_file"]) if arguments["settings_file"] else None)
    torch.set_num_threads(settings.learner_threads)  # Ray allows one a reserved CPU, and we reserve a sliver
    config = RunConfig.model_validate(arguments["config"])
    records = RunRecords(settings.db.get_secret_value(), arguments["run_id"], arguments["attempt"])
    try:
        try:
            attempt = (SupervisedAttempt if config.method is Method.SFT else Attempt)(settings, config, records)
            done = attempt.run()
            state = RunState.DONE if done >= config.steps else RunState.STOPPED
            by_first(
                lambda: attempt.watch.tell(EventKind.ENDED, attempt.watch.stopped or f"{state} after {done} steps")
            )
            records.finish(state, attempt.watch.stopped if state is RunState.STOPPED else "")
            if state is RunState.DONE:
                by_first(attempt.copies.drop)
        except Fenced:
            raise
        except RunFailed as error:
            log.error("%s", error)
            records.finish(RunState.FAILED, str(error))
    except Fenced as error:
        log.warning("%s", error)
