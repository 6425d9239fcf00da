"""Settings of the engine and of the gateway in front of it."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from shared.settings import CommonSettings, DatabaseSettings, ServiceSettings

LoraRank = Annotated[Literal[8, 16, 32, 64, 128, 256], BeforeValidator(int)]
"""The ranks vLLM takes as a limit."""


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class ModelSettings(CommonSettings):
    """What engine and gateway must agree on."""

    model: str = Field(description="base model: a Hugging Face folder or name")
    served_name: str = Field(default="base", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", description="the base's name")
    max_loras: int = Field(default=8, ge=1, description="adapters loaded at once")
    max_lora_rank: LoraRank = Field(default=16, description="largest LoRA rank served")


class EngineSettings(ModelSettings):
    """The vLLM engine (CPU build)."""

    host: str = Field(default="127.0.0.1", description="address to listen on; the engine itself asks for no token")
    port: int = Field(ge=1, le=65535, description="port to listen on")
    dtype: Literal["float32", "bfloat16"] = "float32"
    max_model_len: int = Field(default=2048, ge=16, description="longest prompt and reply together, tokens")
    kv_cache_gb: int = Field(default=1, ge=1, description="memory for keys and values, GiB")
    threads: int = Field(default_factory=_cores, ge=1, description="OpenMP threads")
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")


class GatewaySettings(ModelSettings, DatabaseSettings, ServiceSettings):
    """The gateway."""

    engine_urls: list[str] = Field(min_length=1, description="address of each engine replica, http://host:port")
    adapters_cache: Path = Field(description="folder that gateway and engines both see: adapters are loaded from it")
    noise_nats: float = Field(
        default=1e-4,
        gt=0,
        description="mean |difference| in log-probability that two servings of the same weights may show; "
        "the default is for float32, which shows about 2e-6; bfloat16 needs more",
    )
    drain_seconds: float = Field(default=45.0, gt=0, description="how long an unload waits for requests in flight")
