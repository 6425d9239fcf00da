"""Reading rendered manifests: every Pod that they can lead to, and where it came from."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]


@dataclass(frozen=True)
class PodTemplate:
    """A Pod that a manifest asks for, directly or through a controller."""

    origin: str
    labels: dict[str, str]
    spec: Manifest

    @property
    def component(self) -> str:
        """Which part of sqlclimb it is."""
        return self.labels["app.kubernetes.io/component"]

    @property
    def containers(self) -> list[Manifest]:
        """Its containers and those before them."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def embedded(manifests: Sequence[Manifest]) -> list[Manifest]:
    """The Pod and the RayJob that services create from templates in ConfigMaps."""
    found = []
    for manifest in of_kind(manifests, "ConfigMap"):
        for name, text in manifest.get("data", {}).items():
            if name in ("pod.json", "rayjob.json"):
                made = json.loads(text)
                made["metadata"]["name"] = "made-by-a-service"
                if made["kind"] == "RayJob":
                    made["spec"]["entrypoint"] = "python -m services.trainer.job"
                found.append(made)
    return found


def of_kind(manifests: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    """Manifests of those kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def pod_templates(manifests: Sequence[Manifest]) -> Iterator[PodTemplate]:
    """Every Pod, those of templates included."""
    for manifest in [*manifests, *embedded(manifests)]:
        origin = f"{manifest['kind']}/{manifest['metadata']['name']}"
        for template in _templates(manifest):
            yield PodTemplate(origin, template["metadata"]["labels"], template["spec"])


def _templates(manifest: Manifest) -> list[Manifest]:
    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "Pod":
            return [manifest]
        case "Deployment" | "StatefulSet" | "Job":
            return [spec["template"]]
        case "CronJob":
            return [spec["jobTemplate"]["spec"]["template"]]
        case "RayService":
            return ray_pods(spec["rayClusterConfig"])
        case "RayJob":
            return ray_pods(spec["rayClusterSpec"])
    return []


def ray_pods(cluster: Manifest) -> list[Manifest]:
    """Head and workers."""
    return [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]
