"""One object for each service, and Ray."""

from typing import Annotated, Literal

from pydantic import Field

from deploy.chart_values.parts import (
    Component,
    ExistingSecret,
    ExtraEnvironment,
    Part,
    Placement,
    Resources,
    Toleration,
)
from deploy.chart_values.scalars import Annotations, Choice, Count, NodeSelector, OptionalName, QualifiedName, Size
from deploy.chart_values.settings import settings_of
from services.author.settings import AuthorSettings
from services.inference.settings import EngineSettings, GatewaySettings
from services.rollout.settings import RolloutSettings
from services.trainer.settings import TrainerSettings
from services.verifier.settings import VerifierSettings


class GcsFaultTolerance(ExistingSecret):
    enabled: bool
    redisAddress: Annotated[str, Field(pattern=r"^([a-zA-Z0-9.-]+:[0-9]{1,5})?$")]


class Ray(Part):
    mode: Literal["auto", "kuberay", "pod"]
    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    auth: ExistingSecret
    gcsFaultTolerance: GcsFaultTolerance


class Sandbox(Part):
    driver: Literal["pod", "local"]
    runtimeClassName: OptionalName
    dataSize: Size
    resources: Resources
    nodeSelector: NodeSelector
    tolerations: list[Toleration]
    priorityClassName: OptionalName
    admissionPolicy: Choice
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
    podAnnotations: Annotations
    extraEnv: ExtraEnvironment
    schedulerName: OptionalName


class Trainer(Component):
    settings: settings_of(TrainerSettings, {"gold_token_name"})  # type: ignore[valid-type]
    golds: bool
    resources: Resources
    job: Job
