"""deploy/k8s is what the chart renders, and valid."""

import subprocess
from pathlib import Path

import pytest
import yaml

from deploy import samples
from tests.deploy.checking import check
from tests.deploy.helm import helm, kubectl, parse
from tests.deploy.manifests import Manifest, pod_templates

FILES = sorted(path for path in samples.FOLDER.rglob("*.yaml"))


def test_the_samples_are_what_the_chart_renders() -> None:
    for path, content in samples.files(str(helm("4.3"))).items():
        assert path.read_text() == content, f"{path.name}: run `python -m deploy.samples HELM`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_sample_is_valid_and_names_resources_that_exist(path: Path) -> None:
    manifests = parse(path.read_text())
    for manifest in manifests:
        if manifest["kind"] == "Kustomization":
            assert all((path.parent / name).exists() for name in manifest["resources"])
        else:
            check(manifest, "1.33")


def test_a_job_by_hand_runs_like_the_trainers() -> None:
    """With labels by which the policies know its Pods, and a name and entrypoint to change."""
    (job,) = parse((samples.FOLDER / "rayjob.yaml").read_text())
    assert job["spec"]["entrypoint"].endswith("--run-id example --attempt 1")
    assert {pod.component for pod in pod_templates([job])} == {"trainer-job"}
    assert yaml.safe_load((samples.FOLDER / "base/kustomization.yaml").read_text())["namespace"] == "climb"


def test_an_overlay_changes_what_it_says_and_nothing_else() -> None:
    def built(folder: str) -> dict[tuple[str, str], Manifest]:
        argv = [kubectl(), "kustomize", samples.FOLDER / folder]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return {(each["kind"], each["metadata"]["name"]): each for each in parse(done.stdout)}

    base, overlay = built("base"), built("overlays/two-engines")
    changed = {name for kind, name in base if overlay[kind, name] != base[kind, name]}
    assert base.keys() == overlay.keys() and changed == {"climb-sqlclimb-engine", "climb-sqlclimb-rollout"}
    engine = overlay["StatefulSet", "climb-sqlclimb-engine"]["spec"]
    assert engine["replicas"] == 2 and "nodeSelector" in engine["template"]["spec"]
    for manifest in overlay.values():
        check(manifest, "1.33")


def test_the_plain_manifests_migrate_the_database() -> None:
    manifests = parse((samples.FOLDER / "base/sqlclimb.yaml").read_text())
    (job,) = [each for each in manifests if each["kind"] == "Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["python", "-m", "shared.database"]
    assert "annotations" not in job["metadata"]
