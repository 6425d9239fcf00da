"""A group: one prompt and the k samples drawn from it. What travels between coordinator and worker."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shared.contracts.rollout import Message, ModelEndpoint
from shared.contracts.verifier import FinishReason, Profile, Status

MINIMUM_TIMEOUT_SECONDS = 300.0
SLOWEST_TOKENS_PER_SECOND = 4.0
"""A request may take max(300 s, max_tokens / 4): design section 8, `budget`."""


class FailureReason(StrEnum):
    """Why samples did not come. Never the policy's fault: these samples leave every figure."""

    TIMEOUT = "timeout"  # the engine did not finish within the budget
    STRAGGLER = "straggler"  # cut: its training batch was all but complete and did not wait for it
    ENGINE_UNREACHABLE = "engine_unreachable"
    ENGINE_BUSY = "engine_busy"  # the gateway's limit is reached: asked again, held against no group
    ENGINE_ERROR = "engine_error"  # 5xx, or an answer without token ids or log-probabilities
    ENGINE_ABORTED = "engine_aborted"  # the engine gave up a reply it had begun
    EMPTY_REPLY = "empty_reply"  # a reply without a single token; one that ends at once is the policy's own `no_sql`
    ENGINE_REFUSED = "engine_refused"  # it says that this request is at fault: asking again gives the same
    POLICY_NOT_SERVED = "policy_not_served"  # the adapter was unloaded
    ADAPTER_MISMATCH = "adapter_mismatch"  # served by another adapter than the one asked for
    VERIFIER_UNSCORABLE = "verifier_unscorable"  # the reply came, its verdict did not: a row without a reward
    WORKER_DIED = "worker_died"
    TASK_GONE = "task_gone"  # the author no longer has the task, so there is no gold to compare with


PERMANENT = frozenset({FailureReason.ENGINE_REFUSED, FailureReason.TASK_GONE, FailureReason.STRAGGLER})
"""Failures that are not asked again."""


@dataclass(frozen=True)
class Draw:
    """How the replies of a group are drawn. Top-k is always off."""

    temperature: float
    top_p: float
    max_tokens: int
    thinking: bool

    @property
    def timeout_seconds(self) -> float:
        """Longest a group's request may take, its wait in the engine's queue included."""
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
    endpoint: ModelEndpoint | None = None
    """Asked in place of the gateway."""
    api_key: str | None = field(default=None, repr=False)
    """Of the endpoint."""

    def without(self, samples: Sequence["Sample"]) -> "GroupRequest":
        """What is still to be asked for once `samples` have landed."""
        landed = {sample.sample_index for sample in samples}
        return replace(self, sample_indices=tuple(index for index in self.sample_indices if index not in landed))


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
    sqlstate: str | None = None
    reported_tokens: int | None = None
    """The endpoint's own count of reply tokens, where it gave no ids."""

    @property
    def tokens(self) -> int:
        """Reply tokens."""
        return len(self.token_ids) if self.reported_tokens is None else self.reported_tokens


@dataclass(frozen=True)
class Failed:
    """Why samples are missing."""

    reason: FailureReason
    detail: str


@dataclass(frozen=True)
class Landed:
    """Samples of a group that were verified together. Times are wall milliseconds, the first from the group's start."""

    prompt_token_ids: list[int]
    samples: tuple[Sample, ...]
    sample_ms: float
    verify_ms: float
    served_model: str
    adapter_digest: str
    reverified: int = 0
    """Replies sent to the verifier more than once, because their verdict was unscorable."""

    @property
    def tokens(self) -> int:
        """Reply tokens of all samples."""
        return sum(sample.tokens for sample in self.samples)
