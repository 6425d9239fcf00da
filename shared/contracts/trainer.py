"""The trainer's bodies: runs, their configuration and their steps."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from shared.contracts.base import Contract, Identifier
from shared.contracts.rollout import Regime
from shared.contracts.verifier import Profile


class LoraConfig(Contract):
    """PEFT LoRA on all linear layers, never lm_head."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)


class RewardSource(StrEnum):
    """Which rewards the learner sees."""

    VERIFIER = "verifier"
    SHUFFLED = "shuffled"  # control: the batch's rewards in a random order; must show no gain


class Schedule(StrEnum):
    """How the learning rate goes over a run."""

    CONSTANT = "constant"
    LINEAR = "linear"  # falls to 0 at the last step: the noise of single batches averages out of the last adapter


class AdvantageScale(StrEnum):
    """By which standard deviation rewards less their group's mean are divided."""

    GROUP = "group"  # the group's own: every group counts alike, also one that only tells 0.1 from 0
    BATCH = "batch"  # the whole batch's: a group counts by how much its rewards differ


class RunConfig(Contract):
    """Everything that decides a run."""

    domain: Identifier
    model: str = Field(description="Hugging Face folder or name: what inference serves as base")
    band_id: Identifier
    regime: Regime = Regime()
    steps: int = Field(default=40, ge=1)
    prompts_per_step: int = Field(default=32, ge=1)
    k: int = Field(default=16, ge=2, description="samples per prompt")
    learning_rate: float = Field(default=2e-5, gt=0)
    schedule: Schedule = Field(default=Schedule.CONSTANT, description="of the learning rate over the run's steps")
    advantages: AdvantageScale = Field(
        default=AdvantageScale.GROUP, description="what a group's rewards are divided by"
    )
    lora: LoraConfig = LoraConfig()
    beta: float = Field(default=0.0, ge=0)
    epsilon_high: float = Field(default=0.28, gt=0)
    importance_cap: float = Field(default=2.0, gt=1)
    temperature: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=4096, ge=1)
    workers: int = Field(default=1, ge=1, description="Ray Train workers")
    seed: int = 0
    profile: Profile = Field(default=Profile.STANDARD, description="comparison rule of the reward")
    rewards: RewardSource = RewardSource.VERIFIER


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
    """Where a step's wall time went."""

    sample: float
    verify: float
    learn: float
    publish: float
    total: float


class Step(Contract):
    """One optimizer step, as logged."""

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
    adapter_name: str = Field(description="the adapter this step published")
    probe: str = Field(description="`|served-trainer| / |base-trainer|` as the gateway measured it")
    seconds: StepSeconds
    attempt: int
    at: datetime


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


class StepList(Contract):
    """`GET /v1/runs/{id}/steps?after=N`."""

    steps: list[Step]
