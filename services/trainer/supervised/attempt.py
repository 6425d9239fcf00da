"""The training loop of one attempt of a supervised run: what it learns from, how it resumes, when it ends."""

import logging
from typing import Any

import torch

from services.trainer.failures import RunFailed
from services.trainer.job.checkpoints import Checkpoint
from services.trainer.job.grounds import Grounds
from services.trainer.job.publisher import PROBE_SEQUENCES
from services.trainer.job.records import RunRecords
from services.trainer.job.workers import by_first
from services.trainer.settings import JobSettings
from services.trainer.small_policy.examples import Example
from services.trainer.supervised.encoding import Examples, open_encoder, refuse_too_few
from services.trainer.supervised.learner import build_learner
from services.trainer.supervised.recorder import SupervisedRecorder
from services.trainer.supervised.steps import step_tasks
from shared.contracts.run_config import RunConfig
from shared.errors import Invalid

log = logging.getLogger(__name__)

PROBE_REPLY_TOKENS = 32
"""Enough of a reply to tell an adapter from the base."""


class SupervisedAttempt:
    """One attempt of a run in one process."""

    def __init__(self, settings: JobSettings, config: RunConfig, records: RunRecords) -> None:
        self._config = config
        self._grounds = Grounds(settings, config, records)
        self.watch = self._grounds.watch
        self.copies = self._grounds.copies

    def run(self) -> int:
        """Train to the end or a stop; returns the number of updates done. Raises RunFailed."""
        config, grounds = self._config, self._grounds
        checkpoint = grounds.checkpoint
        done = checkpoint.step if checkpoint else 0
        examples = by_first(self._examples)
        refuse_other_examples(examples, checkpoint)
        tasks = step_tasks(examples.kept, config.prompts_per_step, config.steps, config.seed)
        steps = [[examples.kept[task] for task in step] for step in tasks]
        recorder = SupervisedRecorder(grounds, steps, len(examples.kept), examples.digest)
        learner = build_learner(
            config,
            grounds.folder.folder,
            steps[done:] or steps[:1],  # TRL wants a dataset, also when nothing is left to train
            [recorder, grounds.reporting],
            grounds.start.folder,
        )
        recorder.learner = learner
        by_first(lambda: self._choose_probe(learner, steps[0]))
        if checkpoint is not None:
            learner._load_from_checkpoint(str(checkpoint.folder))
            grounds.publisher.score(learner.model)
            if by_first(lambda: recorder.catch_up(checkpoint)):
                return done
        records = grounds.records
        if by_first(lambda: done >= config.steps or records.stop_requested() or self.watch.begin(done, None)):
            return done
        log.info("training from step %d to %d on %d examples", done + 1, config.steps, len(examples.kept))
        learner.train(resume_from_checkpoint=str(checkpoint.folder) if checkpoint else None)
        return int(learner.state.global_step)

    def _examples(self) -> Examples:
        """Fetched anew by each attempt: they may be golds, so no checkpoint holds them. Raises RunFailed."""
        config = self._config
        found = self._grounds.remote.lessons(config)
        try:
            examples = open_encoder(config).examples(found, config.max_tokens)
            refuse_too_few(examples, config)
        except Invalid as error:
            raise RunFailed(error.detail) from error
        return examples

    def _choose_probe(self, learner: Any, step: list[Example]) -> None:
        """Prompts with the start's own replies: an example's reply may be a gold, and a probe leaves the job."""
        publisher = self._grounds.publisher
        if not publisher.probe:
            prompts = [example.prompt for example in step[:: max(1, len(step) // PROBE_SEQUENCES)]]
            publisher.choose_probe([(prompt, own_reply(learner, prompt)) for prompt in prompts])


def refuse_other_examples(examples: Examples, checkpoint: Checkpoint | None) -> None:
    """Raises RunFailed when an earlier attempt learnt from others: the steps' order hangs on all of them."""
    if checkpoint is not None and checkpoint.record["examples"] != examples.digest:
        raise RunFailed(
            f"the examples are not those that the run began with (its tasks or its sampling have changed since step "
            f"{checkpoint.step}): start a new run, with `start_from` to go on from its last adapter. Its checkpoints "
            "are kept"
        )


@torch.no_grad()
def own_reply(learner: Any, prompt: list[int]) -> list[int]:
    """The first tokens of the policy's most likely reply."""
    model = learner.accelerator.unwrap_model(learner.model)
    model.eval()
    try:
        ids = torch.tensor([prompt], device=model.device)
        drawn = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=PROBE_REPLY_TOKENS
        )
    finally:
        model.train()
    return [int(token) for token in drawn[0, len(prompt) :]]
