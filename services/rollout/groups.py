"""A group: one prompt and the k samples drawn from it. What travels between coordinator and worker."""

from dataclasses import dataclass, field
from enum import StrEnum

from shared.contracts.rollout import Message
from shared.contracts.verifier import FinishReason, Profile, Status

MINIMUM_TIMEOUT_SECONDS = 300.0
SLOWEST_TOKENS_PER_SECOND = 4.0
"""A request may take max(300 s, max_tokens / 4): design section 8, `budget`."""


class FailureReason(StrEnum):
    """Why a group gave no samples. Never the policy's fault: these samples leave every figure."""

    TIMEOUT = "timeout"  # the engine did not finish within the budget
    ENGINE_UNREACHABLE = "engine_unreachable"
    ENGINE_ERROR = "engine_error"  # 5xx, or an answer without token ids or log-probabilities
    ENGINE_REFUSED = "engine_refused"  # 4xx: asking again gives the same
    POLICY_NOT_SERVED = "policy_not_served"  # the adapter was unloaded
    ADAPTER_MISMATCH = "adapter_mismatch"  # served by another adapter than the one asked for
    WORKER_DIED = "worker_died"
    TASK_GONE = "task_gone"  # the author no longer has the task, so there is no gold to compare with


PERMANENT = frozenset({FailureReason.ENGINE_REFUSED, FailureReason.TASK_GONE})
"""Failures that another try cannot mend."""


@dataclass(frozen=True)
class Draw:
    """How the replies of a group are drawn. Top-k is always off."""

    temperature: float
    top_p: float
    max_tokens: int
    thinking: bool

    @property
    def timeout_seconds(self) -> float:
        """Longest a request may take."""
        return max(MINIMUM_TIMEOUT_SECONDS, self.max_tokens / SLOWEST_TOKENS_PER_SECOND)


@dataclass(frozen=True)
class SandboxSpec:
    """The sandbox a group's replies run in; made again under the same id when the verifier lost it."""

    sandbox_id: str
    run_id: str
    domain: str


@dataclass(frozen=True)
class GroupRequest:
    """One group to sample and verify."""

    sampling_id: str
    task_id: str
    sample_indices: tuple[int, ...]
    messages: tuple[Message, ...]
    draw: Draw
    served_model: str
    adapter_digest: str
    sandbox: SandboxSpec
    profile: Profile
    order_matters: bool
    gold: str | list[str] = field(repr=False)  # privileged: goes to the verifier and nowhere else


@dataclass(frozen=True)
class Sample:
    """One sampled and verified reply."""

    sample_index: int
    reply: str
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason
    status: Status
    reward: float | None
    sql: str | None
    reason: str


@dataclass(frozen=True)
class Landed:
    """A group that was sampled and verified. Times are wall milliseconds of the whole group."""

    prompt_token_ids: list[int]
    samples: tuple[Sample, ...]
    sample_ms: float
    verify_ms: float
    served_model: str
    adapter_digest: str

    @property
    def tokens(self) -> int:
        """Reply tokens of all samples."""
        return sum(len(sample.token_ids) for sample in self.samples)


@dataclass(frozen=True)
class Failed:
    """A group that gave nothing."""

    reason: FailureReason
    detail: str
