"""The inference service's bodies: adapters and the probe that proves one is live.

The OpenAI routes (`/v1/models`, `/v1/chat/completions`, `/v1/completions`) keep OpenAI's own bodies, plus vLLM's
`return_token_ids`. Every generation response carries the headers below.
"""

from enum import StrEnum

from pydantic import Field

from shared.contracts.base import Contract, Sha256

SERVED_MODEL_HEADER = "x-sqlclimb-served-model"
"""The name under which the engine served the request."""

ADAPTER_DIGEST_HEADER = "x-sqlclimb-adapter-digest"
"""The served adapter's digest; the literal `base` when no adapter was applied."""


class ProbeSequence(Contract):
    """One teacher-forced sequence with the publisher's own log-probabilities."""

    token_ids: list[int] = Field(min_length=2, description="prompt and completion together")
    start: int = Field(ge=1, description="index of the first scored token")
    logprobs: list[float] = Field(description="natural log, one per token from `start` to the end, temperature 1")


class Probe(Contract):
    """What a publish must reproduce before it is `ready`."""

    sequences: list[ProbeSequence] = Field(min_length=1)
    tolerance: float = Field(
        default=0.1,
        gt=0,
        description="mean |served - publisher| may be at most this share of mean |base - publisher|",
    )


class AdapterKind(StrEnum):
    """What the probe must find."""

    TRAINED = "trained"  # differs from base by more than noise
    CONTROL = "control"  # equals base within noise: the B = 0 control of an experiment


class AdapterRequest(Contract):
    """`PUT /v1/adapters/{name}`; name is `<run>-s<step>-<digest8>` (`shared.ids.served_name`).

    Idempotent: the same name and digest again makes sure that the adapter is loaded (it may have been unloaded).
    """

    uri: str = Field(description="folder with adapter_model.safetensors and adapter_config.json (fsspec URI)")
    base: str = Field(description="served name of the base model the adapter was trained on")
    digest: Sha256 = Field(description="`shared.artifacts.adapter_digest` of the tensors")
    kind: AdapterKind = AdapterKind.TRAINED
    probe: Probe | None = Field(default=None, description="needed for a new name; a known one keeps its first probe")


class AdapterState(StrEnum):
    """Life of an adapter."""

    LOADING = "loading"
    READY = "ready"  # every replica serves it and its probe passed
    REFUSED = "refused"  # never served; `reason` says why
    UNLOADED = "unloaded"  # was ready; put it again to serve it again


class ProbeResult(Contract):
    """What the probe measured: mean absolute differences in log-probability per token (nats)."""

    served_minus_publisher: float
    base_minus_publisher: float
    served_minus_base: float
    tokens: int


class Adapter(Contract):
    """`GET /v1/adapters/{name}`."""

    name: str
    run_id: str
    step: int
    uri: str
    base: str
    digest: str
    kind: AdapterKind
    state: AdapterState
    reason: str = ""
    tensors_placed: int = 0
    probe: ProbeResult | None = None
    load_ms: float | None = None


class AdapterList(Contract):
    """`GET /v1/adapters`, newest first."""

    base: str = Field(description="served name of the base model")
    model: str = Field(default="", description="folder or name the base was loaded from; empty when not told")
    max_lora_rank: int | None = Field(default=None, description="largest LoRA rank served; None when not told")
    adapters: list[Adapter]
