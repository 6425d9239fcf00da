"""The author's bodies: authorings and their yield."""

from enum import StrEnum

from pydantic import Field

from shared.contracts.base import Contract, Identifier
from shared.contracts.tasks import Archetype, Difficulty


class AuthoringState(StrEnum):
    """Where an authoring stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # something broke; posted again it goes on
    STOPPED = "stopped"  # `max_cost_usd` is reached; what it bought is published, more money continues it
    CANCELLED = "cancelled"  # by a person; posted again it goes on


class AuthoringRequest(Contract):
    """`POST /v1/authorings`. Repeat a call under the same id: same authoring, resumed."""

    authoring_id: Identifier
    domain: Identifier
    teacher: Identifier = Field(default="grammar", description="`grammar`, `anthropic` or `openai`")
    model: str | None = Field(default=None, description="the teacher's model; None: the author's setting")
    seed: int = 0
    golds: int = Field(default=3200, ge=1, description="golds to propose")
    phrasings: int = Field(default=3, ge=1, le=8, description="questions per gold")
    styles: list[str] = Field(default_factory=list, description="styles of asking; empty: all of the teacher's")
    only: list[Archetype] = Field(default_factory=list, description="only these archetypes; empty: all")
    from_report: Identifier | None = Field(
        default=None, description="a sampling: archetypes get shares by what its policy fails (1 - pass@1)"
    )
    add: bool = Field(default=False, description="keep the domain's current tasks and add to them")
    per_call: int = Field(default=8, ge=1, le=50, description="proposals a call of a model")
    max_tokens: int = Field(default=16_000, ge=256, description="reply budget of a call in tokens, thinking included")
    second_opinions: int = Field(
        default=1, ge=0, le=5, description="independent attempts of a model teacher at each question; 0: none"
    )
    # limits: another value continues the same authoring
    concurrency: int = Field(default=4, ge=1, le=64, description="calls of the model at a time")
    max_cost_usd: float | None = Field(default=None, gt=0, description="stop before spending more; None: no limit")


LIMITS = frozenset({"concurrency", "max_cost_usd"})
"""Fields of a request that may change when it is posted again."""


class ThinCell(Contract):
    """An archetype at a difficulty that has few tasks, or none."""

    archetype: Archetype
    difficulty: Difficulty
    tasks: int


class AuthoringYield(Contract):
    """What was kept and why the rest was not. kept + rejected = proposed + carried."""

    proposed: int
    kept: int
    golds: int = Field(description="distinct golds among the kept tasks")
    holdout_tasks: int
    holdout_golds: int
    rejected: dict[str, int] = Field(description="gate reason to count")
    matrix: dict[str, dict[str, int]] = Field(description="archetype to difficulty to kept tasks")
    carried: int = Field(default=0, description="tasks of the domain's former set that were added to")
    detectable_effect: float = Field(
        default=1.0,
        description="smallest paired pass@1 delta the holdout can detect (80 % power; k 4, pass rates of one half)",
    )
    absent: dict[str, str] = Field(
        default_factory=dict, description="archetype without a task to what the schema would have to have for one"
    )
    thin: list[ThinCell] = Field(default_factory=list, description="what to author next, emptiest first")


class Spending(Contract):
    """What the calls of a teacher's model came to."""

    calls: dict[str, int] = Field(description="`complete`, `length`, `refusal`, `cut`, and `in_flight`, to count")
    input_tokens: int = Field(description="neither read from nor written to a prompt cache")
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None = Field(description="None: the model's price is unknown")
    doubts: int = Field(description="sendings whose end no one saw (the author was killed); each was sent once more")
    doubt_usd: float = Field(description="what they were billed at most, beside `cost_usd`")


class Authoring(Contract):
    """`GET /v1/authorings/{id}`."""

    authoring_id: str
    domain: str
    domain_digest: str
    teacher: str
    model: str | None = None
    state: AuthoringState
    proposed: int = 0
    kept: int = 0
    rejected: dict[str, int] = Field(default_factory=dict, description="gate reason to count so far")
    spending: Spending | None = Field(default=None, description="None for a teacher without a model")
    eta_seconds: float | None = Field(
        default=None, description="None while nothing has landed, and when not running here"
    )
    error: str = ""
    task_set_digest: str = Field(default="", description="set when done")
    result: AuthoringYield | None = None
