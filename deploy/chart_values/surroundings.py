"""What the release meets in its cluster: images, networks, ingress, monitoring."""

from typing import Annotated, Literal

from pydantic import Field

from deploy.chart_values.parts import Part
from deploy.chart_values.scalars import (
    UNIQUE,
    Annotations,
    Choice,
    Cidr,
    Digest,
    Free,
    Name,
    NodeSelector,
    OptionalName,
    Port,
    QualifiedName,
    Repository,
    Tag,
    Url,
)


class Digests(Part):
    verifier: Digest = ""
    sandbox: Digest = ""
    author: Digest = ""
    rollout: Digest = ""
    inference: Digest = ""
    trainer_cpu: Annotated[Digest, Field(alias="trainer-cpu")] = ""
    trainer_cuda: Annotated[Digest, Field(alias="trainer-cuda")] = ""
    engine_cpu: Annotated[Digest, Field(alias="engine-cpu")] = ""
    engine_cuda: Annotated[Digest, Field(alias="engine-cuda")] = ""


class Images(Part):
    registry: Repository
    tag: Tag
    digests: Digests
    pullPolicy: Literal["IfNotPresent", "Always", "Never"]
    pullSecrets: list[Name]


class NetworkPolicy(Part):
    enabled: bool
    clients: list[Free]
    ingressController: Annotated[list[Free], Field(min_length=1)]
    prometheus: Annotated[list[Free], Field(min_length=1)]
    kuberayOperator: Annotated[list[Free], Field(min_length=1)]
    cnpgOperator: Annotated[list[Free], Field(min_length=1)]
    dns: Annotated[list[Free], Field(min_length=1)]
    kubernetesApi: Annotated[list[Cidr], Field(min_length=1)]
    kubernetesApiPorts: Annotated[list[Port], Field(min_length=1)]
    s3: Annotated[list[Cidr], Field(min_length=1)]
    s3Port: Port
    redis: Annotated[list[Cidr], Field(min_length=1)]
    redisPort: Port
    teachers: Annotated[list[Cidr], Field(min_length=1)]
    endpoints: list[Cidr]
    endpointsPorts: Annotated[list[Port], Field(min_length=1)]


class Ingress(Part):
    enabled: bool
    className: OptionalName
    annotations: Annotations
    host: OptionalName
    services: Annotated[
        list[Literal["rollout", "trainer", "inference", "author", "verifier"]],
        Field(min_length=1, json_schema_extra=UNIQUE),
    ]
    tlsSecret: OptionalName


class Dashboards(Part):
    enabled: bool
    label: QualifiedName


class Monitoring(Part):
    monitors: Choice
    rules: Choice
    labels: NodeSelector
    interval: Annotated[str, Field(pattern=r"^[1-9][0-9]*[sm]$")]
    dashboards: Dashboards
    prometheusUrl: Url
    runbooks: Url


class PodDisruptionBudgets(Part):
    enabled: bool
