"""A step's samples: the step's own prompts, then refills for groups that teach nothing; one step ahead if asked.

Every round is a batch of the rollout service, exactly once per (run, step, refill). Which prompts a round asks for
follows from the rows before it, so an attempt that resumes asks for the same ones and gets the same rows.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from services.trainer.failures import RunFailed
from services.trainer.job.background import in_background
from services.trainer.job.publisher import Policy
from services.trainer.job.remote import Batch, Remote
from services.trainer.job.replies import teaches
from services.trainer.job.schedule import Place, Prompts, step_seed
from services.trainer.learning.rows import refuse_other_policy
from shared.contracts.rollout import BatchGroup, BatchRequest
from shared.contracts.run_config import GuardAction, GuardName, RunConfig
from shared.contracts.trainer import EventKind

log = logging.getLogger(__name__)

UNSCORABLE_LIMIT = 0.3
"""Share of a step's samples without a reward above which they are asked for again instead of learnt from."""

PAUSE_SECONDS = 15.0
"""Between two such tries: what failed needs time to come back."""

PATIENCE_SECONDS = 600.0
"""How long such a run waits before it ends."""

Tell = Callable[[EventKind, str], None]
"""Records an event of the run."""


@dataclass(frozen=True)
class Drawn:
    """One step's samples, complete."""

    policy: Policy
    """What drew them."""
    asked: list[str]
    """Task ids of every group, in order of asking."""
    groups: dict[str, BatchGroup]
    chosen: list[str]
    """The groups to learn from, `prompts_per_step` of them: those that teach first."""
    place: Place
    """Where the next step's prompts begin."""
    lost: dict[str, int]
    """Reason to count of samples that never came."""
    sample_seconds: float
    """In the engine, longest group of each round."""
    seconds: float
    """From the first call to the last row."""

    @property
    def learnt(self) -> dict[str, BatchGroup]:
        """The chosen groups, as far as they came."""
        return {task: self.groups[task] for task in self.chosen if task in self.groups}

    @property
    def refilled(self) -> int:
        """Groups asked for beyond the step's own."""
        return len(self.asked) - len(self.chosen)


class Drawer:
    """Draws the batches of one attempt."""

    def __init__(
        self,
        remote: Remote,
        config: RunConfig,
        run_id: str,
        attempt: int,
        band: list[str],
        tell: Tell,
        serve: Callable[[Policy], None],
    ) -> None:
        """`serve`: makes sure that a policy is served."""
        self._remote = remote
        self._serve = serve
        self._config = config
        self._run_id = run_id
        self._attempt = attempt
        self._band = band
        self._tell = tell

    def draw(self, step: int, policy: Policy, place: Place) -> Drawn:
        """The samples of `step`, drawn by `policy`, prompts from `place` on. Raises RunFailed."""
        config = self._config
        started = time.monotonic()
        prompts = Prompts(self._band, config.seed, place)
        asked: list[str] = []
        groups: dict[str, BatchGroup] = {}
        lost: dict[str, int] = {}
        sample_seconds = 0.0
        for refill in range(config.refills + 1):
            teaching = [task for task in asked if teaches(groups.get(task))]
            wanted = prompts.take(config.prompts_per_step - len(teaching), held=asked)
            if not wanted:
                break
            batch = self._scored(self._request(step, refill, policy, wanted), policy, groups)
            refuse_other_policy(batch.groups, policy.digest)
            asked += wanted
            groups |= batch.groups
            sample_seconds += batch.end.sample_seconds
            for reason, count in batch.end.lost.items():
                lost[reason] = lost.get(reason, 0) + count
        teaching = [task for task in asked if teaches(groups.get(task))]
        others = [task for task in asked if task not in teaching]
        return Drawn(
            policy=policy,
            asked=asked,
            groups=groups,
            chosen=(teaching + others)[: config.prompts_per_step],
            place=prompts.place,
            lost=lost,
            sample_seconds=sample_seconds,
            seconds=time.monotonic() - started,
        )

    def _scored(self, request: BatchRequest, policy: Policy, groups: dict[str, BatchGroup]) -> Batch:
        """A batch that leaves the step, with its `groups` so far, with few unscorable samples.

        What is missing is asked for again until the services are back. Raises RunFailed when they stay away, and for a
        step of which nothing was scored.
        """
        patient = self._config.guards.get(GuardName.UNSCORABLE, GuardAction.STOP) is GuardAction.STOP
        deadline = time.monotonic() + PATIENCE_SECONDS
        samples = (len(groups) + len(request.task_ids)) * request.k
        paused = False
        while True:
            batch = self._remote.batch(request, lambda: self._serve(policy))
            share = unscorable_share(groups | batch.groups, samples)
            message = f"step {request.step}: {share:.0%} of {samples} samples are unscorable"
            if share <= UNSCORABLE_LIMIT or (not patient and share < 1.0):
                if paused:
                    self._tell(EventKind.RESUMED, f"{message}, going on")
                return batch
            if not patient or time.monotonic() > deadline:
                raise RunFailed(
                    f"{message}: the verifier or the engine fails ({_reasons(batch)}). Steps before this one are kept; "
                    "see `sqlclimb status`, then start the run again"
                )
            if not paused:
                self._tell(EventKind.PAUSED, f"{message} ({_reasons(batch)}); asking for them again until they come")
            paused = True
            time.sleep(PAUSE_SECONDS)

    def _request(self, step: int, refill: int, policy: Policy, task_ids: list[str]) -> BatchRequest:
        config = self._config
        return BatchRequest(
            run_id=self._run_id,
            attempt=self._attempt,
            step=step,
            refill=refill,
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


def unscorable_share(groups: Mapping[str, BatchGroup], samples: int) -> float:
    """Share of `samples` without a reward; groups that never came count whole."""
    scored = sum(sample.reward is not None for group in groups.values() for sample in group.samples)
    return 1 - scored / samples


def _reasons(batch: Batch) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(batch.end.lost.items())) or "no reason given"


@dataclass(frozen=True)
class _Waiting:
    step: int
    result: "Future[Drawn]"


class Ahead:
    """At most one step's samples in the making while the step before learns: staleness is bounded by construction."""

    def __init__(self, drawer: Drawer) -> None:
        self._drawer = drawer
        self._waiting: _Waiting | None = None

    def begin(self, step: int, policy: Policy, place: Place) -> None:
        """Start to draw `step` in the background."""
        drawn = in_background(f"samples of step {step}", lambda: self._drawer.draw(step, policy, place))
        self._waiting = _Waiting(step, drawn)

    def take(self, step: int, policy: Policy, place: Place) -> Drawn:
        """The samples of `step`: those begun, else drawn now. Raises as Drawer.draw."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.step == step:
            return waiting.result.result()
        return self._drawer.draw(step, policy, place)
