"""What the rollout service reads at start."""

import os
from typing import Self

from pydantic import Field, model_validator

from shared.egress import PUBLIC, EgressEntry, EgressRule
from shared.settings import DatabaseSettings, DomainSettings, ServiceSettings


class RolloutSettings(ServiceSettings, DatabaseSettings, DomainSettings):
    """Samplings, training batches, reports, bands and deltas, on Ray Serve."""

    ray_address: str = Field(default="auto", description="address of the running Ray, host:port")
    author_url: str = Field(description="URL of the author, e.g. http://127.0.0.1:8102")
    verifier_url: str = Field(description="URL of the verifier")
    inference_url: str = Field(description="URL of the inference gateway")
    workers_min: int = Field(default=1, ge=1, description="RolloutWorker replicas kept when idle")
    workers_max: int = Field(default=2, ge=1, description="RolloutWorker replicas at most")
    groups_per_worker: int = Field(
        default=16, ge=1, description="groups in flight a worker: above it another worker is started, below it one goes"
    )
    workers_idle_seconds: float = Field(
        default=60.0, ge=0, description="how long there must be too many workers before one ends its groups and goes"
    )
    groups_in_flight: int = Field(
        default=32,
        ge=1,
        description="groups in flight at most, over all samplings and batches; fewer while the engines are crowded",
    )
    group_retries: int = Field(default=4, ge=0, description="re-rolls of a group before its samples are given up")
    retry_wait_seconds: float = Field(default=1.0, gt=0, description="wait before the first re-roll; doubles each time")
    straggler_quorum: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description="share of a training batch's samples that must be there before the rest is left out; 1: none is",
    )
    straggler_grace_share: float = Field(
        default=0.25, ge=0, description="time that the rest still has, as a share of the time that the quorum took"
    )
    straggler_grace_seconds: float = Field(default=5.0, ge=0, description="and at least this time")
    verify_patience_seconds: float = Field(
        default=300.0, gt=0, description="how long replies wait for an unreachable verifier before they are unscorable"
    )
    endpoints_allowed: list[EgressEntry] = Field(
        default=[PUBLIC],
        description="where a caller's model endpoint may lead: `public` (https at public addresses), or beginnings of "
        "URLs such as http://vllm.models:8000/v1 (without a port: any)",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.workers_min > self.workers_max:
            raise ValueError("workers_min may not be above workers_max")
        return self

    @property
    def egress(self) -> EgressRule:
        """Of callers' endpoints."""
        return EgressRule(tuple(self.endpoints_allowed), "SQLCLIMB_ENDPOINTS_ALLOWED")

    def public(self) -> dict[str, object]:
        """Every setting but the secret ones, as JSON values: what may cross Ray."""
        return self.model_dump(mode="json", exclude={"db"})


def settings_in_replica(public: dict[str, object]) -> RolloutSettings:
    """Settings inside a Serve replica: `public` ones sent by the driver, the DSN from the environment of Ray's node.

    A `runtime_env` would put the DSN into Ray's logs and into the argv of its worker starter. Raises RuntimeError.
    """
    if "SQLCLIMB_DB" not in os.environ:
        raise RuntimeError("SQLCLIMB_DB is not in the environment of this Ray node: set it where `ray start` runs")
    return RolloutSettings.model_validate({**public, "db": os.environ["SQLCLIMB_DB"]})
