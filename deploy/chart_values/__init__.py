"""The types of the chart's values: what `values.schema.json` is generated from. Meanings are in `values.yaml`.

Every field is required there, because `values.yaml` gives each a default: a value set to null is then named as missing
instead of breaking a template.
"""

from deploy.chart_values.parts import ExistingSecret, Part
from deploy.chart_values.scalars import Count, Free, LabelValue, QualifiedName, ShortName
from deploy.chart_values.services import Author, Engine, Inference, Ray, Rollout, Trainer, Verifier
from deploy.chart_values.state import Artifacts, Database, Domains, Model
from deploy.chart_values.surroundings import Images, Ingress, Monitoring, NetworkPolicy, PodDisruptionBudgets


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
