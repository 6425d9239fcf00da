"""The published schemas of the custom resources that the chart writes.

Without descriptions, and without the Pods in them, which are checked as Pods. `python -m tests.deploy.custom_resources
FOLDER` makes the file anew from clones in FOLDER.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

Schema = dict[str, Any]

FILE = Path(__file__).parent / "data/custom_resources.json"

SOURCES = {
    "ray-project/kuberay@v1.7.0": [
        "helm-chart/kuberay-operator/crds/ray.io_rayjobs.yaml",
        "helm-chart/kuberay-operator/crds/ray.io_rayservices.yaml",
    ],
    "prometheus-operator/prometheus-operator@v0.93.0": [
        f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml"
        for plural in ("servicemonitors", "podmonitors", "prometheusrules")
    ],
    "kedacore/keda@v2.20.2": ["config/crd/bases/keda.sh_scaledobjects.yaml"],
    "cloudnative-pg/cloudnative-pg@v1.30.0": [
        "config/crd/bases/postgresql.cnpg.io_clusters.yaml",
        "config/crd/bases/postgresql.cnpg.io_scheduledbackups.yaml",
    ],
}
"""Repository on GitHub and its release to the definitions; all four are under Apache-2.0."""


@functools.cache
def schema_of(api_version: str, kind: str) -> Schema | None:
    """The schema of a whole custom resource; None for one that the chart does not write.

    Closed: the API server prunes, or refuses, a field that it does not know.
    """
    found: Schema | None = json.loads(FILE.read_text()).get(f"{api_version} {kind}")
    return found and _closed(found["schema"])


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {name: _closed(value) for name, value in node.items()}
    properties = node.get("properties")
    is_open = node.get("type") == "object" and "additionalProperties" not in node
    if is_open and isinstance(properties, dict) and "apiVersion" not in properties:
        made["additionalProperties"] = False
    if node.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made.pop("pattern", None)
    return made


def _slim(node: Any) -> Any:
    """Without descriptions; a Pod's template is any object."""
    if isinstance(node, list):
        return [_slim(item) for item in node]
    if not isinstance(node, dict):
        return node
    inner = node.get("properties", {}).get("spec", {}).get("properties", {})
    if "containers" in inner and "metadata" in node["properties"]:
        return {"type": "object"}
    return {name: _slim(value) for name, value in node.items() if name != "description" or isinstance(value, dict)}


def main(folder: Path) -> None:
    """Writes FILE from clones that are called like their repositories."""
    found: dict[str, Schema] = {}
    for source, paths in SOURCES.items():
        repository, _, tag = source.partition("@")
        for path in paths:
            argv = ["git", "-C", str(folder / repository.rpartition("/")[2]), "show", f"{tag}:{path}"]
            spec = yaml.safe_load(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)["spec"]
            version = next(version for version in spec["versions"] if version["storage"])
            schema = _slim(version["schema"]["openAPIV3Schema"])
            del schema["properties"]["status"]
            key = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
            found[key] = {"source": f"https://github.com/{repository}/blob/{tag}/{path}", "licence": "Apache-2.0"}
            found[key]["schema"] = schema
    lines = [f"{json.dumps(key)}: {json.dumps(each, separators=(',', ':'))}" for key, each in sorted(found.items())]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
