"""Settings of the verifier."""

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from services.verifier.sandbox.local import TOTAL_BYTES
from shared.settings import DomainSettings, ServiceSettings

LONGEST_FOLDER = 72
"""Bytes: a Unix socket's path ends at 107, and 35 of them are ours."""


class VerifierSettings(DomainSettings, ServiceSettings):
    """What `python -m services.verifier` reads."""

    sandboxes: Path = Field(
        description="folder for sandbox clusters, this verifier's alone; on tmpfs (e.g. below /dev/shm) it is fastest"
    )
    isolation: Literal["bubblewrap", "process"] | None = Field(
        default=None, description="how sandboxes are kept in; unset: bubblewrap where it works, else process"
    )
    pod_template: Path | None = Field(
        default=None, description="JSON of the Pod to make for each sandbox; unset: sandboxes are processes here"
    )
    pod_name: str = Field(default="", description="with pod_template: the name of this verifier's own Pod")
    pod_uid: str = Field(default="", description="with pod_template: the uid of this verifier's own Pod")
    row_cap: int = Field(default=200, ge=1, le=10_000, description="rows a result may have")
    result_bytes: int = Field(default=1_000_000, ge=1_000, description="bytes of text a result may have")
    sandbox_memory_bytes: int = Field(
        default=256 * 1024**2, ge=192 * 1024**2, description="address space of each Postgres process in a sandbox"
    )
    sandbox_total_bytes: int = Field(
        default=TOTAL_BYTES,
        ge=256 * 1024**2,
        description="memory and new files of a whole sandbox; one that uses more is killed and rebuilt",
    )
    sandbox_ttl_seconds: float = Field(default=3600, gt=0, description="an unused sandbox is removed after so long")
    sandbox_limit: int = Field(default=32, ge=1, description="sandboxes alive at once")
    workers: int = Field(
        default_factory=lambda: min(16, 2 * (os.cpu_count() or 1)),
        ge=1,
        le=32,
        description="statements run at once, all sandboxes; a Postgres backend each",
    )
    cache_bytes: int = Field(
        default=64 * 1024**2, ge=0, description="memory for results of golds, and again of candidates"
    )
    request_bytes: int = Field(default=64 * 1024**2, ge=100_000, description="longest request body; longer ones: 413")
    queue_items: int = Field(
        default=16_384, ge=1, description="items accepted and not answered yet; a request over it: 429 with Retry-After"
    )

    @field_validator("sandboxes")
    @classmethod
    def _short(cls, value: Path) -> Path:
        absolute = value.expanduser().absolute()
        if len(os.fsencode(absolute)) > LONGEST_FOLDER:
            raise ValueError(f"{absolute} is too long for Unix sockets below it: at most {LONGEST_FOLDER} bytes")
        return absolute

    @model_validator(mode="after")
    def _owned(self) -> Self:
        if self.pod_template is not None and not (self.pod_name and self.pod_uid):
            raise ValueError("pod_template needs SQLCLIMB_POD_NAME and SQLCLIMB_POD_UID: sandboxes end with that Pod")
        return self
