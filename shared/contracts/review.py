"""The author's bodies for people who look at tasks: review, decisions, checks, audits. They may hold golds."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from shared.contracts.base import Contract
from shared.contracts.tasks import Difficulty, Split, Sql
from shared.contracts.verifier import ResultPreview

TaskId = Annotated[str, StringConstraints(pattern=r"^t2s_[0-9a-f]{12}$")]


class Action(StrEnum):
    """What a person decides on a question."""

    ACCEPT = "accept"  # a task, though a gate that reads its meaning says otherwise
    REJECT = "reject"  # none, here and in every authoring to come
    EDIT = "edit"  # another question or gold in its place; it passes the gates first


class Decision(Contract):
    """One decision. The newest of a question counts."""

    task_id: TaskId = Field(description="of the question as it was proposed")
    action: Action
    question: str | None = Field(default=None, min_length=1, description="`edit`: the new question; None: as it was")
    golds: list[Sql] | None = Field(
        default=None, min_length=1, description="`edit`: acceptable golds; None: as they were"
    )
    force: bool = Field(default=False, description="`edit`: keep it in spite of a gate that reads its meaning")
    decided_by: str = Field(min_length=1, max_length=100, description="who says so")
    note: str = Field(default="", max_length=1000, description="why")

    @model_validator(mode="after")
    def _edit_changes(self) -> "Decision":
        changes = self.question is not None or self.golds is not None
        if changes != (self.action is Action.EDIT):
            raise ValueError("`question` and `golds` belong to action `edit`, which needs at least one of them")
        return self


class DecisionsRequest(Contract):
    """`POST /v1/domains/{domain}/decisions`: stored one by one; then the domain's task set is made anew."""

    decisions: list[Decision] = Field(default_factory=list, max_length=1000)
    publish: bool = Field(default=True, description="false: stored only; a later call with true makes the set")


class DecisionResult(Contract):
    """What became of one decision."""

    task_id: str
    stored: bool
    reason: str | None = Field(description="why it was not stored: the gate that stopped it; None when it was")
    meaning: str = ""


class DecisionsResponse(Contract):
    """In the order of the decisions."""

    results: list[DecisionResult]
    task_set_digest: str = Field(description="of the domain's current set")
    tasks: int = Field(description="tasks in it")


class StoredDecision(Contract):
    """A decision as it is kept."""

    task_id: str
    action: Action
    question: str = Field(description="as it was proposed")
    decided_by: str
    note: str
    decided_at: datetime


class ReviewItem(Contract):
    """A question to look at, with everything that helps to decide."""

    task_id: str
    question: str
    golds: list[str]
    columns: list[str] = Field(description="what the teacher says is asked for; empty: it does not say")
    order_matters: bool
    reason: str | None = Field(description="why it is no task; None: it is one")
    meaning: str = Field(description="the reason in words")
    acceptable: bool = Field(description="whether a person may overrule the reason")
    decision: StoredDecision | None = Field(description="the newest on it")
    rows: ResultPreview | None = Field(
        description="what the first gold returns on the main seed; None: it does not run"
    )


class ReviewQueue(Contract):
    """`GET /v1/domains/{domain}/review`. Needs the `gold` scope."""

    domain: str
    authoring_id: str
    waiting: int = Field(description="undecided questions that a person may overrule, all of them")
    items: list[ReviewItem]


class BrokenTask(Contract):
    """A current task that no longer passes its gates."""

    task_id: str
    question: str
    split: Split
    difficulty: Difficulty
    reason: str
    meaning: str


class TaskCheck(Contract):
    """`POST /v1/domains/{domain}/tasks/check`: the current tasks against the bundle as it is now."""

    domain: str
    authored_digest: str = Field(description="of the bundle that the tasks were made for")
    current_digest: str
    tasks: int
    broken: list[BrokenTask]


class AuditSample(Contract):
    """One sample of a policy, as a rollout row holds it."""

    task_id: TaskId
    sql: Sql
    matches: bool = Field(description="whether its verdict is `match`")


class AuditRequest(Contract):
    """`POST /v1/domains/{domain}/audits`: a strong policy's samples that hold SQL. Needs the `gold` scope."""

    samples: list[AuditSample] = Field(min_length=1, max_length=200_000)
    agreement: float = Field(default=0.75, gt=0.5, le=1, description="share of a task's samples that must agree")
    minimum_samples: int = Field(default=3, ge=2, description="fewer samples of a task say nothing")


class Suspect(Contract):
    """A task whose samples agree with each other and not with its gold."""

    task_id: str
    question: str
    golds: list[str]
    answer: str = Field(description="the SQL that most of the agreeing samples gave")
    samples: int
    agreeing: int
    share: float


class Audit(Contract):
    """Most agreed first."""

    domain: str
    audited: int = Field(description="tasks with enough samples")
    suspects: list[Suspect]
    share: float = Field(description="suspects over audited tasks; 0 when none was audited")
