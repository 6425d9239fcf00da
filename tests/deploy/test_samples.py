"""deploy/k8s is what the chart renders, and valid."""

from pathlib import Path

import pytest
import yaml

from deploy import samples
from tests.deploy.checking import check
from tests.deploy.helm import helm, parse
from tests.deploy.manifests import pod_templates

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
