"""What is made of samplings: reports, bands, deltas, replays and scans of rows."""

from enum import StrEnum

from pydantic import Field, model_validator

from shared.contracts.base import Contract, Identifier
from shared.contracts.rollout import SamplingState
from shared.contracts.verifier import Explanation, Profile, Status, Verdict


class Replay(Contract):
    """`POST /v1/rows/{row_id}/replay`: one verdict again, explained. For people with the `gold` scope."""

    row_id: int
    sampling_id: str
    task_id: str
    question: str
    recorded: Status
    verdict: Verdict
    explanation: Explanation | None = Field(description="None when the reply holds no statement that may run")


class FindingKind(StrEnum):
    """Why a rewarded statement is worth a look."""

    NO_TABLE = "no_table"
    VOLATILE = "volatile"
    CATALOG = "catalog"
    ONE_FOR_MANY = "one_for_many"


class Finding(Contract):
    """A rewarded statement that may have earned its reward otherwise than by answering."""

    row_id: int
    task_id: str
    kind: FindingKind
    sql: str
    detail: str


class Scan(Contract):
    """`GET /v1/samplings/{id}/scan`: rewarded replies looked through for reward hacking."""

    sampling_id: str
    rewarded: int = Field(description="rows with reward 1")
    findings: list[Finding]


class Estimate(Contract):
    """A mean over tasks with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


class ReportLine(Contract):
    """One sampling's figures over all its tasks, or over one slice of them."""

    slice: str = Field(description="`all`, `difficulty=easy`, `archetype=window`, …")
    asked: int = Field(description="tasks the sampling asks")
    tasks: int = Field(description="of those, with a scored sample: what pass@1 is a mean over")
    rows: int
    unscorable: int
    pass_at_1: Estimate
    pass_at_k: Estimate
    pass_hat_k: Estimate
    headroom: float = Field(description="pass@k - pass@1")
    no_sql: float
    sql_error: float
    sql_error_classes: dict[str, float] = Field(
        description="share by the first two characters of SQLSTATE, `unknown` for rows from before it was kept"
    )
    mismatch: float
    refused: float
    timeout: float
    cut: float = Field(description="share stopped by the token budget")
    thought: float = Field(description="share of replies that hold a thinking block")
    distinct: float = Field(description="mean share of distinct replies in a group")
    median_tokens: float
    median_sample_ms: float = Field(description="wall milliseconds from asking a group to its replies")
    short_tasks: int = Field(
        description="tasks with fewer than k scored samples; while the sampling runs, of those with a row"
    )
    pass_at_1_short_failed: float = Field(description="pass@1 if every sample that these tasks miss were a failure")
    detectable_effect: float = Field(description="smallest paired pass@1 delta this task count can detect (80 % power)")


class Report(Contract):
    """`GET /v1/reports?sampling=…`."""

    sampling_id: str
    policy: str
    adapter_digest: str
    k: int
    temperature: float
    profile: Profile
    state: SamplingState
    lines: list[ReportLine] = Field(description="`all` first")


class BandRequest(Contract):
    """`POST /v1/bands`: the train tasks whose raw pass rate lies in [low, high]."""

    band_id: Identifier
    sampling_id: Identifier
    low: float = Field(default=0.1, ge=0, le=1)
    high: float = Field(default=0.9, ge=0, le=1)
    for_policy: str = Field(default="base", description="the policy that will be trained on it, `base` or RUN@STEP")

    @model_validator(mode="after")
    def _ordered(self) -> "BandRequest":
        if self.low >= self.high:
            raise ValueError("`low` must be below `high`")
        return self


class Band(Contract):
    """Prompts worth training on, and the policy they were cut on."""

    band_id: str
    sampling_id: str
    domain: str
    policy: str
    adapter_digest: str
    low: float
    high: float
    task_ids: list[str]
    considered: int
    below: int
    above: int
    previous: str | None = Field(default=None, description="the domain's last band before this one")
    shared: int = Field(default=0, description="tasks that are in the previous band too")
    previous_size: int = 0
    warnings: list[str] = Field(default_factory=list, description="why training on it may do little")


class DeltaRequest(Contract):
    """`POST /v1/deltas`: samplings of the same tasks; several a side are repeats of one measurement."""

    before: list[Identifier] = Field(min_length=1, description="sampling ids, or one policy: its newest evaluation")
    after: list[Identifier] = Field(min_length=1)
    domain: Identifier | None = Field(default=None, description="where a policy's evaluation is looked for; None: any")
    seed: int = 0

    @model_validator(mode="after")
    def _each_once(self) -> "DeltaRequest":
        named = [*self.before, *self.after]
        if len(set(named)) < len(named):
            raise ValueError("a sampling is named twice: a delta needs another one on each side, and each repeat once")
        return self


class DeltaVerdict(StrEnum):
    """What a paired delta says."""

    MOVED = "moved"  # one sampling a side
    MOVED_REPLICATED = "moved_replicated"  # several a side, and at least two repeats show it alone, none the contrary
    MOVED_UNREPLICATED = "moved_unreplicated"  # several, pooled it moved, but the repeats alone do not bear it out
    MOVED_THE_WRONG_WAY = "moved_the_wrong_way"
    NO_CHANGE_DETECTED = "no_change_detected"
    WITHIN_EVAL_NOISE = "within_eval_noise"
    INSUFFICIENT_DATA = "insufficient_data"
    NOT_COMPARABLE = "not_comparable"


class DeltaLine(Contract):
    """A paired difference (after minus before), tasks as pairs."""

    slice: str
    metric: str = Field(description="`pass@1`, `pass@k`, `pass^k`, `no_sql`, `sql_error`, `cut`, `tokens`")
    tasks: int
    before: float
    after: float
    delta: Estimate
    p_value: float = Field(description="two-sided sign-flip p-value")


class Flip(Contract):
    """A task whose pass rate changed by half or more."""

    task_id: str
    question: str
    before: float = Field(description="pass rate")
    after: float
    row_id: int | None = Field(
        description="a row that failed on the worse side, for `POST /v1/rows/{id}/replay`; None: none did"
    )


class Delta(Contract):
    """`POST /v1/deltas` answer."""

    before: list[str] = Field(description="ids of the samplings")
    after: list[str]
    before_policy: str
    after_policy: str
    verdict: DeltaVerdict
    sentence: str = Field(description="one sentence that reads the result")
    differences: list[str] = Field(description="why the sides are not comparable; empty otherwise")
    detectable_effect: float
    repeats: int = Field(default=1, description="pairs of samplings, each compared by itself too")
    repeats_alone: int = Field(default=0, description="repeats whose own interval shows the verdict; 0 for one pair")
    lines: list[DeltaLine] = Field(description="overall pass@1 first")
    gained: list[str] = Field(description="ids of tasks whose pass rate rose by half or more")
    lost: list[str]
    flips: list[Flip] = Field(default_factory=list, description="the gained tasks, then the lost ones")
