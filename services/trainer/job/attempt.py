"""The training loop of one attempt: what each step draws, how it resumes, when it ends."""

import logging
import time
from typing import Any

from transformers import set_seed

from services.trainer.failures import RunFailed
from services.trainer.job.checkpoints import Checkpoint
from services.trainer.job.drawing import Ahead, Drawer, Drawn
from services.trainer.job.figures import batch_figures
from services.trainer.job.grounds import Grounds
from services.trainer.job.publisher import Policy
from services.trainer.job.recorder import StepRecorder
from services.trainer.job.records import RunRecords
from services.trainer.job.replies import reply_figures
from services.trainer.job.schedule import Place, step_seed
from services.trainer.job.workers import by_first
from services.trainer.learning.learner import GrpoLearner, build_learner
from services.trainer.learning.rows import REWARD_COLUMN, refuse_unended, shuffled, to_rows
from services.trainer.settings import JobSettings
from shared.contracts.run_config import RewardSource, RunConfig

log = logging.getLogger(__name__)


class Attempt:
    """One attempt of a run in one process."""

    def __init__(self, settings: JobSettings, config: RunConfig, records: RunRecords) -> None:
        grounds = Grounds(settings, config, records)
        self._config = config
        self._records = records
        self._remote = grounds.remote
        self._folder = grounds.folder
        self._checkpoint = grounds.checkpoint
        self._start = grounds.start
        self._publisher = grounds.publisher
        self.watch = grounds.watch
        self.copies = grounds.copies
        self._recorder = StepRecorder(grounds)
        self._reporting = grounds.reporting
        self._place = Place()

    def run(self) -> int:
        """Train to the end or a stop; returns the number of updates done. Raises RunFailed."""
        config = self._config
        checkpoint = self._checkpoint
        done = checkpoint.step if checkpoint else 0
        band = self._remote.band(config.band)
        if len(set(band.task_ids)) < config.prompts_per_step:
            raise RunFailed(
                f"band {config.band_id} holds {len(set(band.task_ids))} tasks, a step takes {config.prompts_per_step} "
                "distinct ones. Nothing was trained"
            )
        records = self._records
        serve = self._publisher.serve_again
        drawer = Drawer(self._remote, config, records.run_id, records.attempt, band.task_ids, self.watch.tell, serve)
        self._ahead = Ahead(drawer)
        learner = build_learner(
            config,
            self._folder.folder,
            # TRL wants a dataset, also when nothing is left to train; which prompts fill a step's places is ours
            [step_places(config, step) for step in range(done + 1, config.steps + 1)] or [step_places(config, 0)],
            self._rollout,
            self._assure_published,
            [self._recorder, self._reporting],
            self._start.folder,
        )
        self._learner = self._recorder.learner = learner
        if checkpoint is not None and self._catch_up(checkpoint):
            return done
        if by_first(lambda: done >= config.steps or records.stop_requested() or self.watch.begin(done, band)):
            return done
        log.info("training from step %d to %d", done + 1, config.steps)
        learner.train(resume_from_checkpoint=str(checkpoint.folder) if checkpoint else None)
        return int(learner.state.global_step)

    def _catch_up(self, checkpoint: Checkpoint) -> bool:
        """Load a checkpoint, serve its adapter, log its step if a kill came in between. Returns whether to stop."""
        learner: Any = self._learner
        learner._load_from_checkpoint(str(checkpoint.folder))
        self._publisher.score(learner.model)
        self._place = Place(**checkpoint.record["place"])
        return by_first(lambda: self._serve_and_log(checkpoint))

    def _serve_and_log(self, checkpoint: Checkpoint) -> bool:
        before = checkpoint.record["before"]
        if before and self._config.run_ahead and checkpoint.step < self._config.steps:
            self._publisher.serve_again(Policy.restored(before))  # the samples that a kill cut short go on under it
        return self._recorder.catch_up(checkpoint)

    def _assure_published(self) -> None:
        """TRL's `sync_weights`: the adapter was published when its step ended; here it must be the current one."""
        step, current = self._learner.state.global_step, self._publisher.current
        if current.step != step:
            raise RunFailed(f"step {step + 1} would be drawn from the adapter of step {current.step}")

    def _rollout(self, places: list[str], learner: GrpoLearner) -> dict[str, Any]:
        """TRL's `rollout_func`: one step's samples and rewards, group by group. Begins the next step's."""
        config, step = self._config, learner.state.global_step + 1
        if places[:: config.k] != step_places(config, step):
            raise RunFailed(f"TRL asks for other places in step {step} than its dataset gives")
        set_seed(step_seed(config.seed, step))  # a resume must shuffle this step's rows as an unbroken run would
        started = time.monotonic()
        drawn = self._ahead.take(step, self._policy_of(step), self._place)
        waited = time.monotonic() - started
        self._place = drawn.place
        if config.run_ahead and step < config.steps:
            self._ahead.begin(step + 1, self._policy_of(step + 1), drawn.place)
        figures = self._figures(drawn, learner.eos_token_ids)
        rows = to_rows(drawn.chosen, config.k, drawn.learnt, learner.eos_token_ids[0])
        refuse_unended(rows, learner.eos_token_ids)
        self._publisher.choose_probe(
            [
                (prompt, completion)
                for prompt, completion, lost in zip(rows.prompt_ids, rows.completion_ids, rows.lost, strict=True)
                if not lost
            ]
        )
        self._recorder.now.drawn = drawn
        self._recorder.now.waited = waited
        self._recorder.now.figures = figures
        shuffle = config.rewards is RewardSource.SHUFFLED
        return {
            "prompt_ids": rows.prompt_ids,
            "completion_ids": rows.completion_ids,
            "logprobs": rows.logprobs,
            "env_mask": rows.mask,
            REWARD_COLUMN: shuffled(rows.rewards, step_seed(config.seed, step)) if shuffle else rows.rewards,
        }

    def _policy_of(self, step: int) -> Policy:
        """What draws the samples of `step`: the same rule in every attempt, so that a resume gets the same rows."""
        return self._publisher.policy(max(0, step - 1 - self._config.run_ahead))

    def _figures(self, drawn: Drawn, end_ids: list[int]) -> dict[str, Any]:
        """The step's figures over all that was drawn: those of the chosen groups alone would flatter the policy."""
        k = self._config.k
        rows = to_rows(drawn.asked, k, drawn.groups, end_ids[0])
        batch = batch_figures(rows, rows.rewards, k)
        replies = reply_figures(drawn.groups.values(), end_ids)
        return {
            **vars(batch),
            **vars(replies),
            "samples": len(drawn.asked) * k,
            "refilled": drawn.refilled,
            "lost": drawn.lost,
        }


def step_places(config: RunConfig, step: int) -> list[str]:
    """The rows of TRL's dataset for one step: places that the drawer fills with prompts of the band."""
    return [f"step {step}, prompt {place}" for place in range(config.prompts_per_step)]
