"""What an attempt of any method stands on: the services, its checkpoints, its start, its watch."""

import importlib.util

from services.trainer.failures import RunFailed
from services.trainer.guards.watch import Watch
from services.trainer.job.checkpoints import Checkpoint, RunFolder
from services.trainer.job.copies import CheckpointCopies
from services.trainer.job.publisher import Publisher
from services.trainer.job.records import RunRecords
from services.trainer.job.remote import Remote
from services.trainer.job.reporting import Reporting
from services.trainer.job.starting import starting_point
from services.trainer.job.workers import by_first
from services.trainer.settings import JobSettings
from services.trainer.trackers import missing_trackers
from shared.contracts.run_config import RunConfig


class Grounds:
    """Of one attempt in one process. Raises RunFailed where the run cannot begin."""

    def __init__(self, settings: JobSettings, config: RunConfig, records: RunRecords) -> None:
        refuse_missing_kernels(config)
        if missing := missing_trackers(config.report_to):
            raise RunFailed(f"`report_to`: {missing}. Nothing was trained")
        self.records = records
        self.remote = Remote(settings)
        self.folder = RunFolder(settings.checkpoints, records.run_id, records.attempt)
        self.copies = CheckpointCopies(settings.artifacts, records.run_id)
        self.checkpoint = by_first(self._newest_checkpoint)
        """What the attempt goes on from; None at the start."""
        self.start = by_first(lambda: starting_point(config, self.remote, self.folder.folder / "start"))
        self.publisher = Publisher(
            records.run_id,
            self.remote.base_name(),
            settings.artifacts,
            self.remote,
            self.start.policy,
            self.checkpoint.record["probe"] if self.checkpoint else [],
        )
        self.watch = Watch(config, records, self.remote)
        self.reporting = Reporting(config.report_to, records.run_id, self.folder.folder, self.watch.tell)

    def _newest_checkpoint(self) -> Checkpoint | None:
        self.copies.bring_newest(self.folder)
        newest, logged = self.folder.newest(), max((step.step for step in self.records.steps()), default=0)
        if newest is not None and newest.step > logged + 1:  # a kill leaves one step sealed and not logged
            raise RunFailed(
                f"the newest checkpoint of run {self.records.run_id} is of step {newest.step}, its log ends at step "
                f"{logged}: it is of another run of that name, or the control database lost steps. Start a run with "
                "another id. Nothing was trained"
            )
        return self.folder.begin()


def refuse_missing_kernels(config: RunConfig) -> None:
    """Raises RunFailed when a module that the model's layers need is not installed in the trainer's image."""
    missing = [name for name in config.kernels if importlib.util.find_spec(name) is None]
    if missing:
        raise RunFailed(
            f"`kernels`: {', '.join(missing)} is not installed where the trainer runs; without it {config.model} falls "
            "back to layers many times slower. Install it in the trainer's image, or remove it from `kernels`. "
            "Nothing was trained"
        )
