"""The inference service's bodies: adapters and the probe that proves one is live.

The OpenAI routes (`/v1/models`, `/v1/chat/completions`, `/v1/completions`) keep OpenAI's own bodies, plus vLLM's
`return_token_ids`. Every generation response carries the headers below.
"""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from shared.contracts.base import Contract, Sha256
from shared.contracts.measuring import Delta

SERVED_MODEL_HEADER = "x-sqlclimb-served-model"
"""The name under which the engine served the request."""

ADAPTER_DIGEST_HEADER = "x-sqlclimb-adapter-digest"
"""The served adapter's digest; the literal `base` when no adapter was applied."""

GROUP_HEADER = "x-sqlclimb-group"
"""A request's header: requests of one model and one value go to one replica, whose prefix cache holds their prompt."""


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

    uri: str = Field(
        description="folder with adapter_model.safetensors and adapter_config.json, or a zip or tar of one (fsspec URI)"
    )
    base: str = Field(description="served name of the base model the adapter was trained on")
    digest: Sha256 = Field(description="`shared.artifacts.adapter_digest` of the tensors")
    kind: AdapterKind = AdapterKind.TRAINED
    probe: Probe | None = Field(default=None, description="needed for a new name; a known one keeps its first probe")


class AdapterState(StrEnum):
    """Life of an adapter."""

    LOADING = "loading"
    READY = "ready"  # every replica serves it and its probe passed
    RESTORING = "restoring"  # it was ready; a replica that restarted or joined is being given it, the others serve it
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
    translated: bool = Field(
        default=False, description="its files were rewritten in the base's names (GET …/files?layout=vllm)"
    )
    pinned: bool = Field(default=False, description="never unloaded to make room; an alias keeps its adapter too")
    probe: ProbeResult | None = None
    load_ms: float | None = None


class AdapterList(Contract):
    """`GET /v1/adapters`, newest first."""

    base: str = Field(description="served name of the base model")
    model: str = Field(default="", description="folder or name the base was loaded from; empty when not told")
    max_lora_rank: int | None = Field(default=None, description="largest LoRA rank served; None when not told")
    adapters: list[Adapter]


class Layout(StrEnum):
    """Of the files that `GET /v1/adapters/{name}/files` answers as a tar."""

    PEFT = "peft"  # as they were trained and published: transformers + PEFT load them
    VLLM = "vllm"  # in the names of the base's checkpoint: plain vLLM applies every tensor


class Upload(Contract):
    """`POST /v1/uploads` of a zip or tar of an adapter's folder: what to name as `uri` of a publish."""

    uri: str


class AliasRequest(Contract):
    """`PUT /v1/aliases/{name}`: move the name an application calls to a policy whose gain was measured.

    Needs the `admin` scope: a run's own token must not move what applications call. The delta is of the policy the
    alias names now (`base` for a new alias) against the new one, and it must have moved.
    """

    policy: str = Field(description="`<run>@<step>`; it is served everywhere before the alias moves")
    delta: Delta


class Alias(Contract):
    """`GET /v1/aliases/{name}`; `POST /v1/aliases/{name}/rollback` undoes the newest move."""

    name: str
    policy: str
    model: str = Field(description="served name that answers now")
    delta: Delta = Field(description="what it was moved for")
    previous: str | None = Field(description="policy that a rollback goes back to; None: it would remove the alias")
    moved_at: datetime


class AliasList(Contract):
    """`GET /v1/aliases`, by name."""

    aliases: list[Alias]


class ReplicaState(StrEnum):
    """What the gateway does with a replica."""

    SERVING = "serving"
    RESTORING = "restoring"  # it answers but lacks ready adapters: others are asked first
    AWAY = "away"  # it does not answer; `reason` is its own error where it told one
    LEAVING = "leaving"  # discovery no longer lists it: requests in flight end, new ones go elsewhere


class ReplicaStatus(Contract):
    """One engine replica, as seen at most a second ago. Counts are of sequences: a request with n = 8 is 8."""

    replica: str = Field(description="host:port; `GET /v1/replicas/{replica}/metrics` answers vLLM's own metrics")
    state: ReplicaState
    reason: str = ""
    adapters: int = Field(description="adapters proven there now")
    in_flight: int = Field(description="sequences that this gateway has there now")
    limit: int = Field(description="the most it sends there; beyond that it answers 429")
    running: int = Field(default=0, description="sequences in the engine's batch, of all callers")
    waiting: int = Field(default=0, description="sequences queued in the engine")
    kv_use: float = Field(default=0.0, description="share of the KV cache in use, 0 to 1")


class Pressure(Contract):
    """`GET /v1/pressure`: how busy the engines are. Scope `sample`."""

    replicas: list[ReplicaStatus]
    serving: int = Field(description="replicas that take new requests; 0: everything waits")
    running: int = Field(description="sum over serving replicas")
    waiting: int = Field(description="sum over serving replicas; above 0 more requests only lengthen the queue")
    kv_use: float = Field(description="the fullest serving replica's, 0 to 1")
