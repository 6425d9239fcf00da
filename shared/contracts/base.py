"""The parts every contract shares: the strict base model, problem documents, health and readiness bodies."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$")]
"""A client-given id: letters, digits, `.`, `_`, `@`, `-`; 1 to 128 characters, safe in URLs and file names."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A full SHA-256 digest in lower-case hex."""


class Contract(BaseModel):
    """A finished record: unknown fields are refused (a typo is an error that names itself), values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FieldError(Contract):
    """One faulty field of a request."""

    field: str = Field(description="dotted path of the field, e.g. `items.3.gold`")
    message: str = Field(description="what is wrong and what would be accepted")


class Problem(Contract):
    """An RFC 9457 problem document, sent as `application/problem+json`."""

    type: str = Field(default="about:blank", description="URI reference that names the kind of problem")
    title: str = Field(description="what happened, in a few words")
    status: int = Field(description="the HTTP status")
    detail: str = Field(default="", description="what happened here, what was kept, what to do")
    instance: str = Field(default="", description="the request id")
    errors: list[FieldError] = Field(default_factory=list, description="the faulty fields of a 422")


class Health(Contract):
    """`GET /healthz`: the process answers. Says nothing of what it depends on."""

    status: Literal["ok"] = "ok"
    service: str


class Readiness(Contract):
    """`GET /readyz`: 200 when every check passes, 503 otherwise."""

    ready: bool
    service: str
    checks: dict[str, str] = Field(description="check name to `ok` or the reason it fails")
    versions: dict[str, str] = Field(description="what this service really runs, e.g. `postgres`, `vllm`, `ray`")
