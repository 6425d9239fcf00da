"""Tasks: a question about a domain's database and, for those who may see it, the gold query."""

from enum import StrEnum

from pydantic import Field

from shared.contracts.base import Contract


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


class Privileged(Contract):
    """What no prompt, row, batch, training file, log line or metric ever holds."""

    reference: str | list[str] = Field(description="the gold query, or several acceptable ones")


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
