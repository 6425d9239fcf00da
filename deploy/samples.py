"""Writes deploy/k8s from the chart, for those who use no helm: `python -m deploy.samples HELM` (the helm to use).

`base/` is preset 8xh100 of release `climb` on a database of your own. It names Secrets `climb-tokens`,
`climb-ray-token` and `climb-database`, which you make: docs/kubernetes-install.md says what they hold. `rayjob.yaml` is
the RayJob that the trainer would make, with a run's id to fill in. `overlays/` are written by hand, on top of `base/`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from shared.settings import REPOSITORY

CHART = REPOSITORY / "deploy/helm/sqlclimb"
FOLDER = REPOSITORY / "deploy/k8s"
APIS = ("ray.io/v1", "monitoring.coreos.com/v1")
VALUES: dict[str, Any] = {
    "auth": {"existingSecret": "climb-tokens"},
    "ray": {"auth": {"existingSecret": "climb-ray-token"}},
    "database": {"mode": "external", "external": {"existingSecret": "climb-database", "cidrs": ["10.0.0.0/8"]}},
    "monitoring": {"dashboards": {"enabled": False}},
}
"""Nothing that is made anew at each rendering."""

HEADER = "# Rendered from deploy/helm/sqlclimb by `python -m deploy.samples`; change the chart instead.\n"


def rendered(helm: str) -> list[dict[str, Any]]:
    """The preset's manifests without tests and Secrets; the migrations' job needs no hook, services wait for it."""
    argv = [helm, "template", "climb", str(CHART), "--values", str(CHART / "values-8xh100.yaml"), "--values", "-"]
    argv += ["--namespace", "climb", "--skip-tests", "--kube-version", "1.33"]
    argv += [word for api in APIS for word in ("--api-versions", api)]
    done = subprocess.run(argv, input=yaml.safe_dump(VALUES), capture_output=True, text=True, check=True)
    manifests = [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]
    for manifest in manifests:
        if any(name.startswith("helm.sh/hook") for name in manifest["metadata"].get("annotations", {})):
            del manifest["metadata"]["annotations"]
    return [manifest for manifest in manifests if manifest["kind"] != "Secret"]


def rayjob(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """The RayJob of the trainer's template."""
    found = next(manifest for manifest in manifests if manifest["metadata"]["name"].endswith("-rayjob"))
    job: dict[str, Any] = json.loads(found["data"]["rayjob.json"])
    job["metadata"]["name"] = "run-example-a1"
    job["spec"]["entrypoint"] = "python -m services.trainer.job --run-id example --attempt 1"
    return job


def files(helm: str) -> dict[Path, str]:
    """Path to content."""
    manifests = rendered(helm)
    rayservices = [manifest for manifest in manifests if manifest["kind"] == "RayService"]
    others = [manifest for manifest in manifests if manifest["kind"] != "RayService"]
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "climb",
        "resources": ["sqlclimb.yaml", "rayservice.yaml"],
    }
    made = {"base/sqlclimb.yaml": others, "base/rayservice.yaml": rayservices, "rayjob.yaml": [rayjob(manifests)]}
    contents = {FOLDER / name: HEADER + yaml.safe_dump_all(found, sort_keys=False) for name, found in made.items()}
    return contents | {FOLDER / "base/kustomization.yaml": HEADER + yaml.safe_dump(kustomization, sort_keys=False)}


if __name__ == "__main__":
    for path, content in files(sys.argv[1]).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
