"""Watches one attempt: judges the guards after each step, tells events, queues measurements of checkpoints."""

import logging
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from services.trainer.failures import Fenced, RunFailed
from services.trainer.guards.memory import memory_preflight
from services.trainer.guards.rules import Evidence, findings
from services.trainer.job.drawing import Drawn
from services.trainer.job.records import RunRecords
from services.trainer.job.remote import Remote
from services.trainer.planning.planner import cut_on_another
from shared.contracts.measuring import Band
from shared.contracts.rollout import Purpose, SamplingParameters, SamplingRequest
from shared.contracts.run_config import SUPERVISED_GUARDS, GuardAction, GuardName, Method, RunConfig
from shared.contracts.tasks import Split
from shared.contracts.trainer import CurvePoint, EventKind, RunEvent, Step

log = logging.getLogger(__name__)

SERVED_TASKS = 100
"""Prompts of the run on which a served checkpoint is scored (guard `served`)."""


class Watch:
    """What people are told of an attempt, and whether it must stop."""

    def __init__(self, config: RunConfig, records: RunRecords, remote: Remote) -> None:
        self._config = config
        self._records = records
        self._remote = remote
        idle = frozenset(GuardName) - SUPERVISED_GUARDS if config.method is Method.SFT else frozenset()
        self._actions = dict.fromkeys(idle, GuardAction.OFF) | config.guards
        self._steps: list[Step] = records.steps()
        self._told = {event.guard for event in records.events() if event.action is GuardAction.WARN}
        self._trained: deque[str] = deque(maxlen=SERVED_TASKS)
        self.stopped = ""
        """Why a guard ends the run; empty when none does."""
        self.firing: dict[GuardName, float] = {}
        """The metric of each guard that fired at the last judgement."""

    def tell(self, kind: EventKind, message: str) -> None:
        """Record an event. Raises Fenced."""
        log.info("%s: %s", kind, message)
        self._records.add_event(self._event(kind, message))

    def begin(self, done: int, band: Band | None) -> bool:
        """The attempt starts after `done` steps: judge what can be judged before any. Returns whether to stop.

        `band` is None for a run that draws no samples.
        """
        self.tell(EventKind.STARTED, f"attempt {self._records.attempt} goes on after step {done}")
        if done:
            return False
        if band and (warning := cut_on_another(band, self._config)):
            self.tell(EventKind.WARNED, warning)
        self._measure(0)
        line = self._remote.report(band.sampling_id).lines[0] if band else None
        return self._judge(Evidence(steps=(), band=line, memory_bytes=memory_preflight(self._config)))

    def after(self, step: Step, drawn: Drawn | None) -> bool:
        """A step is logged: judge, and measure its checkpoint if it is due. Returns whether to stop.

        `drawn` is None for a step that an earlier attempt drew.
        """
        self._steps = [known for known in self._steps if known.step != step.step] + [step]
        if drawn is not None:
            self._trained.extend(drawn.asked)
        every = self._config.evaluation.every
        if every and (step.step % every == 0 or step.step == self._config.steps):
            self._measure(step.step)
        return self._judge(Evidence(self._steps, self._records.curve() if every else ()))

    def _judge(self, evidence: Evidence) -> bool:
        found = findings(evidence, self._actions)
        self.firing = {finding.name: finding.reading.value for finding in found}
        for finding in found:
            if finding.name in self._told:
                continue
            self._told.add(finding.name)
            log.warning("%s", finding.message)
            event = self._event(EventKind.GUARD, finding.message)
            reading = finding.reading
            self._records.add_event(
                event.model_copy(
                    update={
                        "guard": finding.name,
                        "action": finding.action,
                        "value": reading.value,
                        "limit": reading.limit,
                    }
                )
            )
            if finding.action is GuardAction.STOP and not self.stopped:
                self.stopped = finding.message
        return bool(self.stopped)

    def _measure(self, step: int) -> None:
        """Queue the samplings that measure the checkpoint of `step`. A failure is told, and costs no training."""
        plan = self._config.evaluation
        if not plan.every:
            return
        policy = f"{self._records.run_id}@{step}" if step else self._config.start_from
        asked = SamplingParameters(k=plan.k, temperature=plan.temperature, top_p=plan.top_p, max_tokens=plan.max_tokens)
        self._queue(CurvePoint(step=step, sampling_id=self._sampling_id(step, "holdout")), policy, asked)
        if self._trained and self._config.guards.get(GuardName.SERVED) is not GuardAction.OFF:
            as_trained = SamplingParameters(
                k=4, temperature=self._config.temperature, top_p=1.0, max_tokens=self._config.max_tokens
            )
            point = CurvePoint(step=step, kind="trained", sampling_id=self._sampling_id(step, "trained"))
            self._queue(point, policy, as_trained, list(dict.fromkeys(self._trained)))

    def _queue(
        self,
        point: CurvePoint,
        policy: str,
        parameters: SamplingParameters,
        task_ids: Sequence[str] | None = None,
    ) -> None:
        request = SamplingRequest(
            sampling_id=point.sampling_id,
            purpose=Purpose.EVALUATION if task_ids is None else Purpose.BAND,  # of prompts trained on: no evaluation
            domain=self._config.domain,
            policy=policy,
            regime=self._config.regime,
            parameters=parameters,
            profile=self._config.profile,
            split=Split.HOLDOUT if task_ids is None else Split.TRAIN,
            limit=self._config.evaluation.limit if task_ids is None else None,
            task_ids=None if task_ids is None else list(task_ids),
        )
        try:
            self._remote.measure(request)
        except Fenced:
            raise
        except RunFailed as error:
            log.warning("step %d is not measured: %s", point.step, error)
            point = point.model_copy(update={"error": str(error)})
        self._records.queue_evaluation(point)

    def _sampling_id(self, step: int, kind: str) -> str:
        return f"{self._records.run_id}-s{step}-{kind}"

    def _event(self, kind: EventKind, message: str) -> RunEvent:
        return RunEvent(
            kind=kind,
            message=message,
            step=self._steps[-1].step if self._steps else 0,
            attempt=self._records.attempt,
            at=datetime.now(UTC),
        )
