"""The trainer's bodies: runs, their attempts, steps and events."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from shared.contracts.base import Contract, Identifier
from shared.contracts.run_config import GuardAction, GuardName, RunConfig
from shared.contracts.supervision import SupervisedFigures


class RunRequest(Contract):
    """`POST /v1/runs`. Under a known id with an equal config it resumes an unfinished run; else 409."""

    run_id: Identifier
    config: RunConfig


class RunState(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class StepSeconds(Contract):
    """Where a step's wall time went. What generation did while the step before learnt is not waited for."""

    sample: float
    verify: float
    learn: float
    publish: float
    total: float
    generation: float = Field(default=0.0, description="from asking for the step's samples to having them all")


class Step(Contract):
    """One optimizer step, as logged. A supervised one draws nothing: its figures of samples and rewards are 0."""

    step: int = Field(description="1 for the first update")
    reward: float = Field(description="mean over scored samples")
    reward_std: float = Field(description="mean within-group standard deviation")
    zero_variance: float = Field(description="share of groups whose rewards are all equal")
    logprob_gap: float = Field(description="mean |trainer - engine| log-probability per sampled token (nats)")
    importance_ratio: float = Field(description="mean importance ratio before the cap")
    kl: float | None = Field(description="mean per-token KL to base, adapter off; None when not measured")
    loss: float
    grad_norm: float
    completion_tokens: float = Field(description="mean length")
    cut: float = Field(description="share stopped by the token budget")
    unscorable: int
    effective_sample_size: float | None = Field(
        default=None, description="of the capped importance weights, as a share of the tokens: (sum w)^2 / (n sum w^2)"
    )
    staleness: int = Field(default=0, description="updates between the policy that was sampled and the one trained")
    samples: int = Field(default=0, description="asked for, refills included; the shares above are of all that came")
    refilled: int = Field(default=0, description="groups that taught nothing and gave way to another prompt")
    matched: float = Field(default=0.0, description="share of scored samples with verdict `match`")
    no_sql: float = Field(default=0.0, description="share of scored samples without a statement")
    extra_turns: float = Field(default=0.0, description="share of replies that go on after their end of turn")
    lost: dict[str, int] = Field(default_factory=dict, description="reason to count of samples that never came")
    supervised: SupervisedFigures | None = Field(default=None, description="None: the step learnt from rewards")
    adapter_name: str = Field(description="the adapter this step published")
    probe: str = Field(description="`|served-trainer| / |base-trainer|` as the gateway measured it")
    seconds: StepSeconds
    attempt: int
    at: datetime


class EventKind(StrEnum):
    """What an event is about."""

    STARTED = "started"  # an attempt's job is up
    RESTARTED = "restarted"  # an attempt died, the next one was begun
    GUARD = "guard"
    WARNED = "warned"  # the config is allowed, and probably not what was meant
    PAUSED = "paused"  # the infrastructure fails; the same samples are asked for again
    RESUMED = "resumed"
    ENDED = "ended"


class RunEvent(Contract):
    """Something a person should know of a run."""

    kind: EventKind
    message: str
    step: int = Field(description="steps done when it happened")
    attempt: int
    at: datetime
    guard: GuardName | None = None
    action: GuardAction | None = None
    value: float | None = Field(default=None, description="the guard's metric")
    limit: float | None = Field(default=None, description="its bound")


class EventList(Contract):
    """`GET /v1/runs/{id}/events`, oldest first."""

    events: list[RunEvent]


class CurvePoint(Contract):
    """A checkpoint's score. `holdout`: tasks never trained on; `trained`: prompts it trained on (guard `served`)."""

    step: int = Field(description="0 is the policy the run started from")
    kind: Literal["holdout", "trained"] = "holdout"
    sampling_id: str
    pass_at_1: float | None = Field(default=None, description="None while it is being measured")
    low: float | None = Field(default=None, description="95 % interval")
    high: float | None = None
    error: str = Field(default="", description="why it will never be measured")


class CodeVersion(Contract):
    """What code an attempt ran."""

    version: str = Field(description="of the installed package")
    commit: str | None = Field(default=None, description="of the git work tree it ran from; None outside one")
    dirty: bool | None = Field(default=None, description="that tree's code differs from the commit; None outside one")
    image: str = Field(default="", description="the container image as its installation names it; empty outside one")


class AttemptRecord(Contract):
    """One attempt of a run whose job came up."""

    attempt: int
    at: datetime = Field(description="its job was up")
    code: CodeVersion
    versions: dict[str, str] = Field(default_factory=dict, description="trl, peft, torch, ray as its job reports them")


class Run(Contract):
    """`GET /v1/runs/{id}`."""

    run_id: str
    config: RunConfig
    state: RunState
    attempt: int
    steps_done: int
    last_adapter: str = Field(default="", description="served name of the newest published adapter")
    last_policy: str = Field(default="", description="`<run>@<step>` of it")
    versions: dict[str, str] = Field(default_factory=dict, description="trl, peft, torch, ray as the job reports them")
    error: str = ""
    created_at: datetime
    finished_at: datetime | None = None
    curve: list[CurvePoint] = Field(default_factory=list, description="measured checkpoints, by step")
    attempts: list[AttemptRecord] = Field(default_factory=list, description="what each attempt really ran, in order")


class RunList(Contract):
    """`GET /v1/runs`, newest first."""

    runs: list[Run]


class RunLog(Contract):
    """`GET /v1/runs/{id}/log`."""

    run_id: str
    tail: str = Field(description="the end of its newest job's log, without secrets")


class StepList(Contract):
    """`GET /v1/runs/{id}/steps?after=N`."""

    steps: list[Step]
