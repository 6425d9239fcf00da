"""The training loop of one attempt: what each step draws, how it resumes, when it ends."""

import logging
from typing import Any

from transformers import set_seed

from services.trainer.checkpoints import Checkpoint, RunFolder
from services.trainer.failures import RunFailed
from services.trainer.figures import batch_figures
from services.trainer.learner import GrpoLearner, build_learner
from services.trainer.publisher import Publisher
from services.trainer.recorder import StepRecorder
from services.trainer.records import RunRecords
from services.trainer.remote import Remote
from services.trainer.rows import REWARD_COLUMN, Rows, refuse_other_policy, refuse_unended, shuffled, to_rows
from services.trainer.schedule import remaining_batches, step_seed
from services.trainer.settings import JobSettings
from shared.contracts.rollout import BatchRequest
from shared.contracts.trainer import RewardSource, RunConfig

log = logging.getLogger(__name__)


class Attempt:
    """One attempt of a run in one process."""

    def __init__(self, settings: JobSettings, config: RunConfig, records: RunRecords) -> None:
        self._config = config
        self._records = records
        self._remote = Remote(settings)
        self._folder = RunFolder(settings.checkpoints, records.run_id)
        self._publisher = Publisher(
            records.run_id,
            self._remote.base_name(),
            settings.artifacts,
            self._remote,
            self._folder.folder / "probe.json",
        )
        self._recorder = StepRecorder(self._folder, self._publisher, records)

    def run(self) -> int:
        """Train to the end or a stop; returns the number of updates done. Raises RunFailed."""
        config = self._config
        self._folder.discard_incomplete()
        checkpoint = self._folder.newest()
        done = checkpoint.step if checkpoint else 0
        band = self._remote.band(config.band_id)
        batches = remaining_batches(band.task_ids, config.prompts_per_step, config.seed, done, config.steps)
        self._expected = {done + index + 1: batch for index, batch in enumerate(batches)}
        learner = build_learner(
            config,
            self._folder.folder,
            batches or [band.task_ids[:1]],  # TRL wants a dataset even when nothing is left to train
            self._rollout,
            self._assure_published,
            [self._recorder],
        )
        self._learner = self._recorder.learner = learner
        if checkpoint is not None and self._catch_up(checkpoint):
            return done
        if done >= config.steps or self._records.stop_requested():
            return done
        log.info("training from step %d to %d", done + 1, config.steps)
        learner.train(resume_from_checkpoint=str(checkpoint.folder) if checkpoint else None)
        return int(learner.state.global_step)

    def _catch_up(self, checkpoint: Checkpoint) -> bool:
        """Load a checkpoint, serve its adapter, log its step if a kill came in between. Returns whether to stop."""
        learner: Any = self._learner
        learner._load_from_checkpoint(str(checkpoint.folder))
        if self._records.has_step(checkpoint.step):
            self._publisher.publish(checkpoint, learner.model)
            return False
        return self._recorder.publish_and_log(checkpoint)

    def _assure_published(self) -> None:
        """TRL's `sync_weights`: the adapter was published when its step ended; here it must be the current one."""
        step, current = self._learner.state.global_step, self._publisher.current
        if current.step != step:
            raise RunFailed(f"step {step + 1} would be drawn from the adapter of step {current.step}")

    def _rollout(self, prompts: list[str], learner: GrpoLearner) -> dict[str, Any]:
        """TRL's `rollout_func`: one step's samples and rewards, group by group."""
        config, step = self._config, learner.state.global_step + 1
        task_ids = prompts[:: config.k]
        if task_ids != self._expected[step]:
            raise RunFailed(f"TRL asks for other prompts in step {step} than the schedule gives")
        set_seed(step_seed(config.seed, step))  # a resume must shuffle this step's rows as an unbroken run would
        policy = self._publisher.current
        batch = self._remote.batch(
            BatchRequest(
                run_id=self._records.run_id,
                attempt=self._records.attempt,
                step=step,
                domain=config.domain,
                policy=policy.policy,
                adapter_digest=policy.digest,
                regime=config.regime,
                task_ids=task_ids,
                k=config.k,
                temperature=config.temperature,
                max_tokens=config.max_tokens,
                profile=config.profile,
                seed=step_seed(config.seed, step),
            )
        )
        refuse_other_policy(batch.groups, policy.digest)
        rows = to_rows(task_ids, config.k, batch.groups, learner.eos_token_ids[0])
        refuse_unended(rows, learner.eos_token_ids)
        rewards = self._rewards(rows, step)
        self._publisher.choose_probe(rows)
        self._recorder.now.batch = batch
        self._recorder.now.figures = batch_figures(rows, rewards, config.k)
        return {
            "prompt_ids": rows.prompt_ids,
            "completion_ids": rows.completion_ids,
            "logprobs": rows.logprobs,
            "env_mask": rows.mask,
            REWARD_COLUMN: rewards,
        }

    def _rewards(self, rows: Rows, step: int) -> list[float | None]:
        if all(reward is None for reward in rows.rewards):
            raise RunFailed(
                f"all {len(rows.rewards)} samples of step {step} are unscorable: the verifier or the engine fails. "
                "Steps before this one are kept; see `sqlclimb status`, then start the run again"
            )
        if self._config.rewards is RewardSource.SHUFFLED:
            return shuffled(rows.rewards, step_seed(self._config.seed, step))
        return rows.rewards
