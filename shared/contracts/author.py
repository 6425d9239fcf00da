"""The author's bodies: authorings and their yield."""

from enum import StrEnum

from pydantic import Field

from shared.contracts.base import Contract, Identifier


class AuthoringState(StrEnum):
    """Where an authoring stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class AuthoringRequest(Contract):
    """`POST /v1/authorings`. Repeat a call under the same id: same authoring, resumed."""

    authoring_id: Identifier
    domain: Identifier
    teacher: Identifier = Field(default="grammar", description="only `grammar` is built in so far")
    seed: int = 0
    golds: int = Field(default=3200, ge=1, description="distinct golds to propose")
    phrasings: int = Field(default=3, ge=1, le=8, description="questions per gold")


class AuthoringYield(Contract):
    """What was kept and why the rest was not."""

    proposed: int
    kept: int
    golds: int = Field(description="distinct golds among the kept tasks")
    holdout_tasks: int
    holdout_golds: int
    rejected: dict[str, int] = Field(description="gate reason to count")
    matrix: dict[str, dict[str, int]] = Field(description="archetype to difficulty to kept tasks")


class Authoring(Contract):
    """`GET /v1/authorings/{id}`."""

    authoring_id: str
    domain: str
    domain_digest: str
    teacher: str
    state: AuthoringState
    proposed: int = 0
    kept: int = 0
    error: str = ""
    task_set_digest: str = Field(default="", description="set when done")
    result: AuthoringYield | None = None
