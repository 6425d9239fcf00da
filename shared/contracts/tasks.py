"""Tasks: a question about a domain's database and, for those who may see it, the gold query."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from shared.contracts.base import Contract, Identifier

Sql = Annotated[str, StringConstraints(min_length=1, max_length=16_384)]
"""A statement, within the verifier's limit."""


class Archetype(StrEnum):
    """The ten kinds of question."""

    FILTER = "filter"
    JOIN = "join"  # two or more tables
    GROUPING = "grouping"  # GROUP BY, HAVING
    TOP_N = "top_n"
    DATE_BUCKETS = "date_buckets"
    ANTI_JOIN = "anti_join"
    SELF_JOIN = "self_join"
    DERIVED_METRIC = "derived_metric"
    SET_LOGIC = "set_logic"  # set operations and DISTINCT
    WINDOW = "window"


class Difficulty(StrEnum):
    """How much SQL a right answer needs, measured from the gold's parse tree."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


class Split(StrEnum):
    """Which side of the line a task falls on; decided by its gold (see `shared.ids.split_of`)."""

    TRAIN = "train"
    HOLDOUT = "holdout"


class Provenance(Contract):
    """Where a task came from. Holds nothing from which the gold can be read."""

    teacher: str
    authoring_id: str
    domain: str
    domain_digest: str
    gold_key: str = Field(description="first 16 hex digits of sha256(split key): equal for phrasings of one gold")
    fold: int = Field(ge=0, le=1, description="half of the split: 0 warm-starts the small policy, 1 feeds GRPO")
    label: Difficulty | None = Field(
        default=None, description="the teacher's own difficulty, beside the measured one; None: it gave none"
    )
    edits: list[str] = Field(
        default_factory=list, description="what the gates changed: `order_by_removed`; `edited`: by a person"
    )


class Privileged(Contract):
    """What no prompt, row, batch, training file, log line or metric ever holds."""

    reference: str | list[str] = Field(description="the gold query, or several acceptable ones")

    @property
    def golds(self) -> list[str]:
        """Every acceptable one."""
        return [self.reference] if isinstance(self.reference, str) else self.reference


class Task(Contract):
    """A task as anyone with the `sample` scope sees it."""

    id: str = Field(description='"t2s_" + sha256(question.strip().lower())[:12]')
    question: str = Field(min_length=1)
    archetype: Archetype
    difficulty: Difficulty
    style: str = Field(description="the phrasing's style, e.g. `terse`, `polite`")
    order_matters: bool
    split: Split
    provenance: Provenance


class PrivilegedTask(Task):
    """A task with its gold: only for tokens with the `gold` scope."""

    privileged: Privileged


class TaskSet(Contract):
    """`GET /v1/domains/{domain}/tasks`: the current tasks of a domain."""

    domain: str
    digest: str = Field(description="SHA-256 over the sorted ids and golds of all of the domain's current tasks")
    tasks: list[PrivilegedTask | Task]


class ImportedTask(Contract):
    """A task from elsewhere. Nothing about it is trusted before the gates have seen it."""

    question: str = Field(min_length=1)
    golds: list[Sql] = Field(min_length=1, description="acceptable queries; each must pass, the first names the task")
    order_matters: bool = Field(default=False, description="false: it does where the question asks and the gold orders")
    columns: list[str] = Field(
        default_factory=list, description="what is asked for, one entry a column; empty: unknown"
    )
    archetype: Archetype | None = Field(default=None, description="None: read from the gold")
    difficulty: Difficulty | None = Field(default=None, description="the source's label, kept beside the measured one")
    style: str = ""
    split: Split | None = Field(default=None, description="None: the gold decides, as for authored tasks")


class ImportRequest(Contract):
    """`POST /v1/imports`: runs as an authoring of teacher `import`; needs the `author` and `gold` scopes.

    Repeat a call under the same id: same authoring, resumed.
    """

    authoring_id: Identifier
    domain: Identifier
    tasks: list[ImportedTask] = Field(min_length=1, max_length=100_000)
    add: bool = Field(default=False, description="keep the domain's current tasks and add to them")


class RejectedTask(Contract):
    """One question that did not become a task. Says nothing of its gold."""

    position: int = Field(description="of its proposal: for an import, of its row, from 0")
    task_id: str
    question: str
    reason: str
    meaning: str = Field(description="the reason in words")


class RejectedTasks(Contract):
    """`GET /v1/authorings/{id}/rejections`."""

    authoring_id: str
    rejected: list[RejectedTask]
