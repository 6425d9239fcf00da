"""What a supervised run's sources give: one right reply a task. In memory only: a lesson may be a gold."""

from collections import Counter
from dataclasses import dataclass, field

from shared.contracts.rollout import Message
from shared.contracts.supervision import DropReason


@dataclass(frozen=True)
class Lesson:
    """One task's right reply, as text and, where an engine of ours drew it, as that engine's token ids."""

    task_id: str
    messages: list[Message]
    reply: str = field(repr=False)
    prompt_ids: list[int]
    """As the engine saw the messages; empty where they are not known."""
    reply_ids: list[int] = field(repr=False)
    """As it drew the reply, end of turn included; empty where they are not known."""


@dataclass(frozen=True)
class Found:
    """What a source holds."""

    lessons: list[Lesson]
    """One a task."""
    tasks: int
    """Train tasks it asked."""
    dropped: Counter[DropReason]
