"""What the services run from and keep: models, bundles, artifacts, the control database."""

from typing import Annotated, Literal

from pydantic import Field

from deploy.chart_values.parts import Claim, ExistingSecret, Part, Placement, Resources, SharedClaim
from deploy.chart_values.scalars import (
    UNIQUE,
    Cidr,
    Count,
    OptionalDigest,
    OptionalName,
    Port,
    Repository,
    S3Url,
    Schedule,
    SecondsSchedule,
    Tag,
)


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
    configMaps: Annotated[
        list[Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,54}[a-z0-9])?$")]], Field(json_schema_extra=UNIQUE)
    ]


class S3(ExistingSecret):
    url: S3Url
    endpointUrl: Annotated[str, Field(pattern=r"^(https?://[A-Za-z0-9._:/?=&%~-]+)?$")]


class Retention(Part):
    checkpointDays: Annotated[int, Field(ge=0, le=10_000)]
    schedule: Schedule


class ArtifactsBackup(Part):
    destination: S3Url
    schedule: Schedule


class Artifacts(SharedClaim):
    store: Literal["pvc", "s3"]
    s3: S3
    retention: Retention
    backup: ArtifactsBackup


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


class BundledDatabase(Claim, Placement, ExistingSecret):
    image: PostgresImage
    resources: Resources
    backup: Backup


class CnpgDatabase(Claim):
    instances: Annotated[int, Field(ge=1, le=9)]
    backupDestination: S3Url
    backupSchedule: SecondsSchedule
    backupRetention: Annotated[str, Field(pattern=r"^[1-9][0-9]*[dwm]$")]


class Migrations(Part):
    resources: Resources


class Database(Part):
    mode: Literal["bundled", "external", "cnpg"]
    external: ExternalDatabase
    bundled: BundledDatabase
    cnpg: CnpgDatabase
    migrations: Migrations
