"""Texts and numbers of the values, by pattern: what Kubernetes would refuse is refused before it is asked."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

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
Tag = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")]
Repository = Annotated[str, Field(pattern=r"^[a-z0-9.-]*[a-z0-9](:[0-9]{1,5})?(/[a-z0-9._-]*[a-z0-9])*$")]
Cidr = Annotated[
    str, Field(pattern=r"^([0-9]{1,3}(\.[0-9]{1,3}){3}/([0-9]|[12][0-9]|3[0-2])|[0-9a-fA-F:]+/[0-9]{1,3})$")
]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1, le=1000)]
UNIQUE: dict[str, JsonValue] = {"uniqueItems": True}
Schedule = Annotated[str, Field(pattern=r"^[0-9*,/-]+( [0-9A-Za-z*,/-]+){4}$")]
Url = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9._:/?=&%~-]+$")]
SecondsSchedule = Annotated[str, Field(pattern=r"^[0-9*,/-]+( [0-9A-Za-z*,/-]+){5}$")]
S3Url = Annotated[str, Field(pattern=r"^(s3://[A-Za-z0-9._-]+(/[A-Za-z0-9._/=+-]*)?)?$")]
AccessModes = Annotated[
    list[Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]], Field(min_length=1, max_length=3)
]
Choice = Literal["on", "off", "auto"]
NodeSelector = dict[QualifiedName, LabelValue]
Annotations = dict[QualifiedName, str]
Free = dict[str, Any]
"""A part of a Kubernetes manifest, which Kubernetes itself checks."""
