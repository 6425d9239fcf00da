"""What the ledger holds of a sampling, and what is derived from it. Plain data."""

from dataclasses import dataclass
from datetime import datetime

from shared.contracts.rollout import Purpose, SamplingRequest, SamplingState

BATCH_PREFIX = "batch."
"""Begins the ids of training batches' samplings; a client's own id may not."""


@dataclass(frozen=True)
class Policy:
    """A policy resolved to what the engine serves."""

    served_model: str
    adapter_digest: str


@dataclass(frozen=True)
class PlannedTask:
    """A task as a sampling pinned it. No gold."""

    task_id: str
    question: str
    archetype: str
    difficulty: str
    style: str
    split: str


@dataclass(frozen=True)
class NewSampling:
    """Everything that is fixed when a sampling starts."""

    request: SamplingRequest
    policy: Policy
    task_set_digest: str
    system_prompt: str
    prompt_hash: str
    bundle_digest: str
    tasks: tuple[PlannedTask, ...]


@dataclass(frozen=True)
class SamplingRecord:
    """A sampling as the ledger has it."""

    sampling_id: str
    request: SamplingRequest
    policy: Policy
    task_set_digest: str
    system_prompt: str
    prompt_hash: str
    bundle_digest: str
    """Empty for one that started before it was kept."""
    state: SamplingState
    error: str
    void_reason: str | None
    wanted: int
    landed: int
    tokens: int
    rerolls: dict[str, int]
    lost: dict[str, int]
    created_at: datetime
    finished_at: datetime | None

    @property
    def sandbox_owner(self) -> str:
        """Whose sandbox its replies run in: its own, or for a training batch the run's, which outlives the step."""
        if self.request.purpose is Purpose.BATCH:
            return self.sampling_id.removeprefix(BATCH_PREFIX).rpartition(".")[0]
        return self.sampling_id


def batch_sampling_id(run_id: str, step: int, refill: int = 0) -> str:
    """The sampling that holds the rows of a training step, or of one of its refills."""
    return f"{BATCH_PREFIX}{run_id}.{step}" + (f"-{refill}" if refill else "")


@dataclass(frozen=True)
class MissingGroup:
    """A task with sample indices that have no row yet."""

    task: PlannedTask
    sample_indices: tuple[int, ...]


@dataclass(frozen=True)
class Fence:
    """Whose turn it is to write a run's rows."""

    run_id: str
    attempt: int


@dataclass(frozen=True)
class RowFacts:
    """What a report needs of one row."""

    task_id: str
    status: str
    finish_reason: str
    reply_digest: str
    thought: bool
    tokens: int
    row_id: int
    sqlstate: str | None
    sample_ms: float

    @property
    def sqlstate_class(self) -> str:
        """The first two characters of the SQLSTATE; `unknown` for a row from before it was kept."""
        return self.sqlstate[:2] if self.sqlstate else "unknown"
