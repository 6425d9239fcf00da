"""The `settings` of a service: its own settings model, but for what the chart decides."""

from collections.abc import Collection
from typing import Annotated, Any

from pydantic import Field, SecretStr, create_model
from pydantic_settings import BaseSettings

from deploy.chart_values.parts import Part

MANAGED = {
    "host", "port", "tokens_file", "token_name", "db", "domains", "artifacts", "checkpoints", "verifier_url",
    "author_url", "inference_url", "rollout_url", "ray_address", "ray_dashboard_url", "rayjob_template", "sandboxes",
    "pod_template", "pod_name", "pod_uid", "model", "served_name", "max_loras", "max_lora_rank", "engine_urls",
    "engine_dns", "adapters_cache", "device", "tensor_parallel", "start_seconds", "image",
    "gold_token_name",
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
