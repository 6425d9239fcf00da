"""The rollout service's bodies: samplings, rows, training batches. What is made of them: `measuring`."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from shared.contracts.base import Contract, Identifier
from shared.contracts.tasks import Split
from shared.contracts.verifier import FinishReason, Profile, Status


class Regime(Contract):
    """How a policy is asked. Part of its identity: the same in band, training, serving and evaluation."""

    prompt: Literal["full", "question"] = Field(
        default="full", description="`full`: schema, notes and rules; `question`: nothing else (the small policy)"
    )
    thinking: bool = False
    system_prefix: str = ""


class SamplingParameters(Contract):
    """How replies are drawn."""

    k: int = Field(default=4, ge=1, le=64, description="samples per task")
    temperature: float = Field(default=0.7, ge=0, le=2)
    top_p: float = Field(default=0.95, gt=0, le=1)
    max_tokens: int = Field(default=4096, ge=1, description="reply budget in tokens")
    seed: int = Field(
        default=0,
        description="recorded, and tells two samplings apart. No engine gets it: vLLM on a CPU can die of a seeded "
        "request, and batching makes equal seeds differ anyway. Two samplings with one seed are two draws",
    )

    @model_validator(mode="after")
    def _drawn(self) -> Self:
        if self.temperature == 0 and self.k > 1:
            raise ValueError("temperature 0 gives one reply, k times the same: set k to 1, or a temperature above 0")
        return self


class Purpose(StrEnum):
    """What a sampling is for."""

    EVALUATION = "evaluation"
    BAND = "band"
    BATCH = "batch"  # one training step


class EndpointApi(StrEnum):
    """Which API an endpoint speaks."""

    OPENAI = "openai"  # chat completions
    ANTHROPIC = "anthropic"  # messages


class ModelEndpoint(Contract):
    """A model that somebody else serves. Its key is no part of it: see `ENDPOINT_KEY_HEADER`."""

    url: str = Field(
        pattern=r"^https?://[^\s@?#]+$", max_length=500, description="of the API, OpenAI's with its /v1; no password"
    )
    model: str = Field(min_length=1, max_length=200, description="as the endpoint calls it")
    api: EndpointApi = EndpointApi.OPENAI
    with_key: bool = Field(default=False, description="calls carry an API key, which comes beside the request")
    concurrency: int = Field(default=8, ge=1, le=256, description="requests in flight at most, of one worker")


ENDPOINT_POLICY_PREFIX = "endpoint:"
"""Before the model's name, it stands where a policy's name would."""

ENDPOINT_KEY_HEADER = "x-endpoint-key"
"""Of `POST /v1/samplings`: the API key of the request's endpoint. Held in memory, never written anywhere."""


class SamplingRequest(Contract):
    """`POST /v1/samplings`. Under a known id with an equal body it resumes; with another body it is a 409."""

    sampling_id: Identifier
    purpose: Purpose = Purpose.EVALUATION
    domain: Identifier
    policy: str = Field(default="base", description="`base` or `<run>@<step>`; with `endpoint`, left out")
    endpoint: ModelEndpoint | None = Field(default=None, description="sample this model instead of one served here")
    regime: Regime = Regime()
    parameters: SamplingParameters = SamplingParameters()
    profile: Profile = Field(default=Profile.STANDARD, description="comparison rule of its verdicts")
    split: Split = Split.HOLDOUT
    fold: int | None = Field(default=None, ge=0, le=1, description="only this half of the split")
    limit: int | None = Field(default=None, ge=1, description="at most this many tasks, a seeded draw")
    task_ids: list[str] | None = Field(default=None, description="exactly these tasks (`split`, `limit` are ignored)")

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_endpoint(cls, data: Any) -> Any:
        """With an endpoint, the policy's name is that of its model."""
        endpoint = data.get("endpoint") if isinstance(data, dict) else None
        model = endpoint.get("model") if isinstance(endpoint, dict) else getattr(endpoint, "model", None)
        if model is None:
            return data
        named = f"{ENDPOINT_POLICY_PREFIX}{model}"
        if data.get("policy", named) != named:
            raise ValueError(f"`policy` and `endpoint` exclude each other: leave out `policy`, it becomes {named!r}")
        return {**data, "policy": named}

    @model_validator(mode="after")
    def _no_thinking_elsewhere(self) -> "SamplingRequest":
        if self.endpoint is not None and self.regime.thinking:
            raise ValueError("`regime.thinking` has no effect at an endpoint: switch thinking on or off there")
        return self


class SamplingState(StrEnum):
    """Where a sampling stands."""

    RUNNING = "running"
    PAUSED = "paused"  # the infrastructure fails too often; resumes by itself when it answers again
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Progress(Contract):
    """Counts of rows. `wanted` = tasks x k."""

    wanted: int
    landed: int
    rerolled: int = Field(description="samples asked for again after an infrastructure failure")
    rerolls: dict[str, int] = Field(default_factory=dict, description="the same by reason")
    lost: dict[str, int] = Field(description="reason to count of samples given up")
    rows_per_second: float
    tokens_per_second: float
    eta_seconds: float | None


class Sampling(Contract):
    """`GET /v1/samplings/{id}`."""

    sampling_id: str
    request: SamplingRequest
    state: SamplingState
    progress: Progress
    policy_name: str = Field(description="served model name the policy resolved to")
    adapter_digest: str = Field(description="`base` when no adapter")
    task_set_digest: str
    prompt_hash: str = Field(description="SHA-256 of the rendered system prompt")
    error: str = ""
    void_reason: str | None = None
    created_at: datetime
    finished_at: datetime | None = None


class Samplings(Contract):
    """`GET /v1/samplings`."""

    samplings: list[Sampling] = Field(description="newest first")


class VoidRequest(Contract):
    """`POST /v1/samplings/{id}/void`: its rows stay, but no report, band or delta uses them any more."""

    reason: str = Field(min_length=1, max_length=500)


class Message(Contract):
    """One chat message, as sent."""

    role: Literal["system", "user", "assistant"]
    content: str


class Row(Contract):
    """One sample of one task; unique by (sampling_id, task_id, sample_index). Never holds a gold."""

    row_id: int
    sampling_id: str
    task_id: str
    sample_index: int
    messages: list[Message]
    prompt_hash: str
    reply: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float] = Field(description="natural log under the sampling distribution, one per reply token")
    finish_reason: FinishReason
    sample_ms: float
    verify_ms: float
    status: Status
    reward: float | None
    sql: str | None
    reason: str
    served_model: str
    adapter_digest: str = Field(description="as reported by the engine's gateway; `endpoint` for another's model")
    landed_at: datetime
    sqlstate: str | None = Field(default=None, description="Postgres' code of an `sql_error`")
    split: Split | None = Field(default=None, description="its task's, as pinned when the sampling started")
    reported_tokens: int | None = Field(
        default=None, description="reply tokens as an endpoint counts them: it gave no token ids, the row cannot train"
    )


class BatchRequest(Contract):
    """`POST /v1/batches`: one training step's groups; exactly once per (run_id, step), older attempts get 409.

    Training draws at top_p 1 and top_k off, so that the log-probabilities are of the policy's own distribution.
    """

    run_id: Identifier
    attempt: int = Field(ge=1, description="grows by one each time the run's job starts; fences older ones")
    step: int = Field(ge=0)
    refill: int = Field(
        default=0, ge=0, description="0: the step's own prompts; n: its n-th refill, after groups that teach nothing"
    )
    domain: Identifier
    policy: str = Field(description="`base` or `<run>@<step>`")
    adapter_digest: str = Field(description="digest the trainer expects to be served; `base` for none")
    regime: Regime = Regime()
    task_ids: list[str] = Field(min_length=1, description="one group per entry, train split only")
    k: int = Field(ge=2, le=64)
    temperature: float = Field(default=1.0, gt=0, le=2)
    max_tokens: int = Field(ge=1)
    profile: Profile = Profile.STANDARD
    seed: int = 0


class BatchSample(Contract):
    """One completion. A lost sample has no ids, reward None and status `unscorable`."""

    sample_index: int
    completion_ids: list[int]
    logprobs: list[float]
    reward: float | None
    status: Status
    finish_reason: FinishReason
    adapter_digest: str


class BatchGroup(Contract):
    """One NDJSON line of a batch, sent as the group finishes (any order)."""

    kind: Literal["group"] = "group"
    task_id: str
    prompt_ids: list[int]
    samples: list[BatchSample]


class BatchEnd(Contract):
    """The last NDJSON line: without it the stream was cut and the same call must be made again."""

    kind: Literal["end"] = "end"
    groups: int
    sample_seconds: float = Field(description="wall time in the engine, longest group")
    verify_seconds: float = Field(description="wall time in the verifier, summed over groups")
    replayed_rows: int = Field(description="rows that had already landed in the ledger")
    lost: dict[str, int] = Field(default_factory=dict, description="reason to count of samples that never came")


BatchLine = Annotated[BatchGroup | BatchEnd, Field(discriminator="kind")]
