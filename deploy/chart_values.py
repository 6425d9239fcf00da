"""The types of the chart's values: what `values.schema.json` is generated from. Meanings are in `values.yaml`.

Every field is required there, because `values.yaml` gives each a default: a value set to null is then named as missing
instead of breaking a template.
"""

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, create_model
from pydantic_settings import BaseSettings

from services.author.settings import AuthorSettings
from services.inference.settings import EngineSettings, GatewaySettings
from services.rollout.settings import RolloutSettings
from services.trainer.settings import TrainerSettings
from services.verifier.settings import VerifierSettings

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
OptionalName = Annotated[str, Field(pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")]
QualifiedName = Annotated[
    str, Field(pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
]
"""A label or annotation key, a resource's name."""
ShortName = Annotated[str, Field(pattern=r"^([a-z]([a-z0-9-]{0,38}[a-z0-9])?)?$")]
Quantity = (
    Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
    | Annotated[int, Field(ge=0, le=1_000_000_000)]
)
Size = Annotated[str, Field(pattern=r"^[1-9][0-9]*(Mi|Gi|Ti)$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
OptionalDigest = Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]
Tag = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$", json_schema_extra={"not": {"const": "latest"}})
]
Repository = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9._:/-]*[a-z0-9])?$")]
Cidr = Annotated[
    str, Field(pattern=r"^([0-9]{1,3}(\.[0-9]{1,3}){3}/([0-9]|[12][0-9]|3[0-2])|[0-9a-fA-F:]+/[0-9]{1,3})$")
]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1, le=1000)]
Schedule = Annotated[str, Field(pattern=r"^[0-9*,/-]+( [0-9A-Za-z*,/-]+){4}$")]
Url = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9._:/?=&%~-]+$")]
S3Url = Annotated[str, Field(pattern=r"^(s3://[A-Za-z0-9._-]+(/[A-Za-z0-9._/=+-]*)?)?$")]
AccessModes = Annotated[
    list[Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]], Field(min_length=1, max_length=3)
]
ExtraEnvironment = Annotated[list["EnvironmentVariable"], Field(max_length=100)]
Choice = Literal["on", "off", "auto"]
NodeSelector = dict[QualifiedName, LabelValue]
Annotations = dict[QualifiedName, str]
Free = dict[str, Any]
"""A part of a Kubernetes manifest, which Kubernetes itself checks."""


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


MANAGED = {
    "host", "port", "tokens_file", "token_name", "db", "domains", "artifacts", "checkpoints", "verifier_url",
    "author_url", "inference_url", "rollout_url", "ray_address", "ray_dashboard_url", "rayjob_template", "sandboxes",
    "pod_template", "pod_name", "pod_uid", "model", "served_name", "max_loras", "max_lora_rank", "engine_urls",
    "engine_dns", "adapters_cache", "device", "tensor_parallel", "start_seconds",
}  # fmt: skip
"""Settings that the chart itself decides, and secrets: no part of a `settings` value."""


def settings_of(model: type[BaseSettings], without: Collection[str] = ()) -> type[Part]:
    """The settings of a service that a values file may set, all optional."""
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        secret = SecretStr in (field.annotation, *getattr(field.annotation, "__args__", ()))
        if name not in MANAGED and name not in without and not secret:
            constrained = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
            fields[name] = (constrained, Field(default=None, description=field.description))
    return create_model(f"{model.__name__}Values", __base__=Part, **fields)


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


class Images(Part):
    registry: Repository
    tag: Tag
    digests: dict[
        Literal["verifier", "author", "rollout", "trainer", "inference", "engine-cpu", "engine-cuda", "sandbox"], Digest
    ]
    pullPolicy: Literal["IfNotPresent", "Always", "Never"]
    pullSecrets: list[Name]


class ExistingSecret(Part):
    existingSecret: OptionalName


class GcsFaultTolerance(ExistingSecret):
    enabled: bool
    redisAddress: Annotated[str, Field(pattern=r"^([a-zA-Z0-9.-]+:[0-9]{1,5})?$")]


class Ray(Part):
    mode: Literal["auto", "kuberay", "pod"]
    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    auth: ExistingSecret
    gcsFaultTolerance: GcsFaultTolerance


class SharedClaim(Claim):
    existingClaim: OptionalName
    accessModes: AccessModes


class Model(Part):
    path: Annotated[str, Field(pattern=r"^(/models/[A-Za-z0-9._/-]+|[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)?)$")]
    servedName: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]
    maxLoras: Count
    maxLoraRank: Literal[8, 16, 32, 64, 128, 256]
    cache: SharedClaim
    download: bool
    s3Uri: S3Url
    hubTokenSecret: OptionalName


class Domains(Part):
    existingClaim: OptionalName
    configMaps: list[Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,54}[a-z0-9])?$")]]


class S3(ExistingSecret):
    url: S3Url
    endpointUrl: Annotated[str, Field(pattern=r"^(https?://[A-Za-z0-9._:/?=&%~-]+)?$")]


class Retention(Part):
    checkpointDays: Annotated[int, Field(ge=0, le=10_000)]
    schedule: Schedule


class Artifacts(SharedClaim):
    store: Literal["pvc", "s3"]
    s3: S3
    retention: Retention


class ExternalDatabase(ExistingSecret):
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]
    cidrs: list[Cidr]
    port: Port


class Backup(Claim):
    enabled: bool
    schedule: Schedule
    keep: Count


class PostgresImage(Part):
    repository: Repository
    tag: Tag
    digest: OptionalDigest


class BundledDatabase(Claim):
    image: PostgresImage
    resources: Resources
    backup: Backup


class CnpgDatabase(Claim):
    instances: Annotated[int, Field(ge=1, le=9)]
    backupDestination: S3Url
    backupRetention: Annotated[str, Field(pattern=r"^[1-9][0-9]*[dwm]$")]


class Migrations(Part):
    resources: Resources


class Database(Part):
    mode: Literal["bundled", "external", "cnpg"]
    external: ExternalDatabase
    bundled: BundledDatabase
    cnpg: CnpgDatabase
    migrations: Migrations


class Sandbox(Part):
    driver: Literal["pod", "local"]
    runtimeClassName: OptionalName
    dataSize: Size
    resources: Resources
    nodeSelector: NodeSelector
    tolerations: list[Toleration]
    deadlineSeconds: Annotated[int, Field(ge=60, le=2_000_000)]


class VerifierAutoscaling(Part):
    kind: Literal["off", "hpa", "keda"]
    maxReplicas: Count
    target: Count


class EngineAutoscaling(Part):
    kind: Literal["off", "keda"]
    maxReplicas: Count
    target: Count


class Verifier(Component):
    replicas: Count
    settings: settings_of(VerifierSettings, {"isolation"})  # type: ignore[valid-type]
    sandbox: Sandbox
    resources: Resources
    autoscaling: VerifierAutoscaling


class Author(Component):
    replicas: Literal[1]
    settings: settings_of(AuthorSettings)  # type: ignore[valid-type]
    teacherSecret: OptionalName
    resources: Resources


class Inference(Component):
    replicas: Literal[1]
    settings: settings_of(GatewaySettings)  # type: ignore[valid-type]
    resources: Resources


class Engine(Component):
    replicas: Count
    device: Literal["cuda", "cpu"]
    colocated: bool
    settings: settings_of(EngineSettings)  # type: ignore[valid-type]
    gpuResource: QualifiedName
    gpus: Annotated[int, Field(ge=0, le=64)]
    startupSeconds: Annotated[int, Field(ge=30, le=36_000)]
    sharedMemory: Size
    scratchSize: Size
    resources: Resources
    autoscaling: EngineAutoscaling


class RayHead(Part):
    resources: Resources


class RayWorker(RayHead):
    minReplicas: Annotated[int, Field(ge=0, le=1000)]
    maxReplicas: Count


class Rollout(Component):
    settings: settings_of(RolloutSettings)  # type: ignore[valid-type]
    upgradeStrategy: Literal["NewCluster", "None"]
    head: RayHead
    worker: RayWorker


class Kueue(Part):
    queueName: OptionalName


class Job(Placement):
    gpus: Annotated[int, Field(ge=0, le=64)]
    gpuResource: QualifiedName
    workers: Count
    sharedMemory: Size
    headResources: Resources
    workerResources: Resources
    activeDeadlineSeconds: Annotated[int, Field(ge=60, le=31_536_000)]
    ttlSecondsAfterFinished: Annotated[int, Field(ge=0, le=31_536_000)]
    kueue: Kueue
    podLabels: NodeSelector
    schedulerName: OptionalName


class Trainer(Component):
    settings: settings_of(TrainerSettings)  # type: ignore[valid-type]
    resources: Resources
    job: Job


class NetworkPolicy(Part):
    enabled: bool
    clients: list[Free]
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


class Ingress(Part):
    enabled: bool
    className: OptionalName
    annotations: Annotations
    host: Name
    services: Annotated[
        list[Literal["rollout", "trainer", "inference", "author", "verifier"]], Field(min_length=1, max_length=5)
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


class Values(Part):
    """Everything in values.yaml."""

    nameOverride: ShortName
    fullnameOverride: ShortName
    images: Images
    auth: ExistingSecret
    ray: Ray
    model: Model
    domains: Domains
    artifacts: Artifacts
    database: Database
    verifier: Verifier
    author: Author
    inference: Inference
    engine: Engine
    rollout: Rollout
    trainer: Trainer
    networkPolicy: NetworkPolicy
    ingress: Ingress
    monitoring: Monitoring
    podDisruptionBudgets: PodDisruptionBudgets
    commonLabels: dict[QualifiedName, LabelValue]
    topologySpreadMaxSkew: Count
    extraObjects: list[Free]
