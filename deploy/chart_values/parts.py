"""Objects that several values are made of."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from deploy.chart_values.scalars import (
    AccessModes,
    Annotations,
    Free,
    LabelValue,
    NodeSelector,
    OptionalName,
    QualifiedName,
    Quantity,
    Size,
)


class Part(BaseModel):
    """An object of the values: no key is accepted that is not listed."""

    model_config = ConfigDict(extra="forbid")


class EnvironmentVariable(Part):
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value: str | None = None
    valueFrom: Free | None = None


class Toleration(Part):
    key: QualifiedName | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: Annotated[int, Field(ge=0)] | None = None


class Resources(Part):
    requests: dict[QualifiedName, Quantity]
    limits: dict[QualifiedName, Quantity]


ExtraEnvironment = Annotated[list[EnvironmentVariable], Field(max_length=100)]


class Placement(Part):
    nodeSelector: NodeSelector
    tolerations: list[Toleration]
    affinity: Free
    priorityClassName: OptionalName


class Component(Placement):
    podAnnotations: Annotations
    extraEnv: ExtraEnvironment
    serviceAccountAnnotations: Annotations


class Claim(Part):
    size: Size
    storageClassName: OptionalName


class ExistingSecret(Part):
    existingSecret: OptionalName


class SharedClaim(Claim):
    existingClaim: OptionalName
    accessModes: AccessModes
