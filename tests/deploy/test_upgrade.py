"""An upgrade from the version before keeps what may not change: names, selectors, claims (issue 8, A6).

`data/` keeps each released chart as `helm package` made it. A difference here needs a migration note in
docs/kubernetes-operate.md and an entry below.
"""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.helm import PRESETS, render
from tests.deploy.manifests import Manifest, of_kind

PACKAGES = sorted((Path(__file__).parent / "data").glob("sqlclimb-*.tgz"))

KEPT_KINDS = (
    "PersistentVolumeClaim",
    "Secret",
    "Service",
    "Deployment",
    "StatefulSet",
    "RayService",
    "Cluster",
    "ServiceAccount",
)


def identity(manifests: list[Manifest]) -> dict[tuple[str, str], Any]:
    """What the API refuses to change, or what work would be lost with."""
    found: dict[tuple[str, str], Any] = {}
    for manifest in of_kind(manifests, *KEPT_KINDS):
        spec = manifest.get("spec", {})
        fields = ("selector", "serviceName", "volumeClaimTemplates", "podManagementPolicy", "clusterIP")
        kept: dict[str, Any] = {name: spec[name] for name in fields if name in spec}
        if manifest["kind"] == "PersistentVolumeClaim":
            kept |= spec
        if manifest["kind"] == "Secret":
            kept["keys"] = sorted([*manifest.get("data", {}), *manifest.get("stringData", {})])
        found[manifest["kind"], manifest["metadata"]["name"]] = kept
    return found


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.stem)
@pytest.mark.parametrize("preset", PRESETS)
def test_an_upgrade_changes_nothing_that_may_not_change(package: Path, preset: str, tmp_path: Path) -> None:
    with tarfile.open(package) as archive:
        archive.extractall(tmp_path, filter="data")
    before = identity(render(preset, chart=tmp_path / "sqlclimb"))
    after = identity(render(preset, upgrade=True))
    assert before.items() <= after.items()


def test_a_charts_version_is_packaged_when_it_is_released() -> None:
    assert PACKAGES, "helm package deploy/helm/sqlclimb --destination tests/deploy/data"


def migration(**options: Any) -> Manifest:
    (job,) = [job for job in of_kind(render(**options), "Job") if "migrate" in job["metadata"]["name"]]
    return job["metadata"]


def test_migrations_run_before_an_upgrade_and_before_an_install_on_a_database_that_exists() -> None:
    external = {"database": {"mode": "external", "external": {"existingSecret": "db", "cidrs": ["10.0.0.5/32"]}}}
    for options in ({"upgrade": True}, {"values": external}):
        hook = migration(**options)["annotations"]
        assert hook["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert "annotations" not in migration(), "a bundled database does not exist before its release"


def test_a_new_image_makes_a_new_migration_job() -> None:
    """A Job's Pod is immutable, and tools that render without a cluster see every upgrade as an install."""
    assert migration()["name"] != migration(values={"images": {"tag": "0.2.0"}})["name"]


def test_what_holds_work_survives_an_uninstall() -> None:
    for manifest in of_kind(render("multi-node"), "PersistentVolumeClaim", "Secret", "Cluster"):
        assert manifest["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", manifest["metadata"]["name"]
