"""Settings of the engine and of the gateway in front of it."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, FilePath, ValidationInfo, field_validator

from shared.egress import PUBLIC, EgressEntry, EgressRule
from shared.settings import CommonSettings, DatabaseSettings, ServiceSettings

LoraRank = Annotated[Literal[8, 16, 32, 64, 128, 256], BeforeValidator(int)]
"""The ranks vLLM takes as a limit."""


def _engine_url(url: str) -> str:
    parts = urlsplit(url.rstrip("/"))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or not parts.port:
        raise ValueError(f"{url!r} is no engine's address: write http://host:port")
    return url.rstrip("/")


EngineUrl = Annotated[str, AfterValidator(_engine_url)]


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class ModelSettings(CommonSettings):
    """What engine and gateway must agree on."""

    model: str = Field(description="base model: a Hugging Face folder or name")
    served_name: str = Field(default="base", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", description="the base's name")
    max_loras: int = Field(default=8, ge=1, description="adapters loaded at once")
    max_lora_rank: LoraRank = Field(default=16, description="largest LoRA rank served")


class Device(StrEnum):
    """What the engine computes on."""

    CPU = "cpu"
    CUDA = "cuda"


class EngineSettings(ModelSettings):
    """The vLLM engine. It asks for no token itself: only the gateway may reach it."""

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(ge=1, le=65535, description="port to listen on")
    device: Device | None = Field(
        default=None, description="cpu or cuda; default: what the installed vLLM is built for"
    )
    dtype: Literal["float32", "bfloat16", "float16"] | None = Field(
        default=None, description="of weights and activations; default: float32 on a CPU, bfloat16 on a GPU"
    )
    max_model_len: int = Field(default=2048, ge=16, description="longest prompt and reply together, tokens")
    kv_cache_gb: int = Field(default=1, ge=1, description="on a CPU: memory for keys and values, GiB")
    gpu_memory_share: float = Field(
        default=0.9, gt=0, lt=1, description="on a GPU: share of its memory for weights and KV cache"
    )
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs that hold one copy of the model together")
    threads: int = Field(default_factory=_cores, ge=1, description="on a CPU: OpenMP threads")
    chat_template: FilePath | None = Field(default=None, description="Jinja file in place of the model's own template")
    thinking: bool = Field(
        default=False, description="whether a chat that does not say so thinks (`enable_thinking` of the template)"
    )
    start_seconds: float = Field(
        default=900.0, gt=0, description="an engine that is not ready by then is started again"
    )
    drain_seconds: int = Field(default=20, ge=0, description="how long a stop waits for requests in flight")
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")


class GatewaySettings(ModelSettings, DatabaseSettings, ServiceSettings):
    """The gateway."""

    engine_urls: list[EngineUrl] = Field(
        default=[], description="address of each engine replica, http://host:port; or set engine_dns"
    )
    engine_dns: EngineUrl | None = Field(
        default=None,
        validate_default=True,
        description="http://name:port; every address of the name is a replica (a headless Service), asked each second",
    )
    adapters_cache: Path = Field(description="folder that gateway and engines both see: adapters are loaded from it")
    artifacts: str | None = Field(default=None, description="fsspec URL of the artifact store; uploads are kept there")
    stores_allowed: list[EgressEntry] = Field(
        default=[PUBLIC],
        description="where an adapter's http(s) address may lead: `public` (https at public addresses), or beginnings "
        "of URLs such as http://files.models/runs (without a port: any)",
    )
    noise_nats: float = Field(
        default=1e-4,
        gt=0,
        description="mean |difference| in log-probability that two servings of the same weights may show; "
        "the default is for float32, which shows about 2e-6; bfloat16 needs more",
    )
    drain_seconds: float = Field(default=45.0, gt=0, description="how long an unload waits for requests in flight")
    shutdown_seconds: int = Field(
        default=20, ge=0, description="how long the gateway's own end waits for requests in flight"
    )
    max_in_flight: int = Field(
        default=512, ge=1, description="sequences sent to one replica at a time (n counts); beyond that, 429"
    )
    affinity_spill: int = Field(
        default=32,
        ge=0,
        description="sequences that the replica which holds a request's prompt may be busier than the least busy one",
    )

    @property
    def egress(self) -> EgressRule:
        """Of adapters' web addresses."""
        return EgressRule(tuple(self.stores_allowed), "SQLCLIMB_STORES_ALLOWED")

    @field_validator("engine_dns")
    @classmethod
    def _one_way_to_find_them(cls, dns: str | None, info: ValidationInfo) -> str | None:
        if "engine_urls" in info.data and bool(info.data["engine_urls"]) == bool(dns):
            raise ValueError("set either this or SQLCLIMB_ENGINE_URLS")
        return dns
