"""An upgrade from the version before keeps what may not change: names, selectors, claims (issue 8, A6).

`data/` keeps each released chart as `helm package` made it. A difference here needs a migration note in
docs/kubernetes-operate.md and its place in CHANGED.
"""

import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm import CHART, OPERATORS, PRESETS, render, run_helm, template
from tests.deploy.manifests import Manifest, embedded, of_kind

PACKAGES = sorted((Path(__file__).parent / "data").glob("sqlclimb-*.tgz"))

CHANGED: dict[tuple[str, str], str] = {}
"""(kind, name) of what an upgrade replaces, to the heading of its note in docs/kubernetes-operate.md."""

MUTABLE = {
    "StatefulSet": {"replicas", "ordinals", "template", "updateStrategy", "minReadySeconds", "revisionHistoryLimit",
                    "persistentVolumeClaimRetentionPolicy"},
    "PersistentVolumeClaim": set(),
    "Job": set(),
}  # fmt: skip
"""What the API lets change in these kinds' specs; all else stays as it was made."""

FIXED = {
    "Deployment": ("selector",),
    "Service": ("selector", "clusterIP", "type"),
    "RayService": (),
    "Cluster": ("bootstrap", "storage"),
    "ServiceAccount": (),
    "Secret": (),
}
"""Of other kinds: what is immutable, or what work or traffic would be lost with. Their names always."""

MODES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "external database, S3": {
        "database": {"mode": "external", "external": {"existingSecret": "db", "cidrs": ["10.0.0.5/32"]}},
        "artifacts": {"store": "s3", "s3": {"url": "s3://bucket/prefix", "existingSecret": "s3"}},
    },
    "backups": {"database": {"bundled": {"backup": {"enabled": True}}}},
}


def identity(manifests: list[Manifest]) -> dict[tuple[str, str], Any]:
    """What the API refuses to change, or what work would be lost with."""
    found: dict[tuple[str, str], Any] = {}
    for manifest in manifests:
        kind, name, spec = manifest["kind"], manifest["metadata"]["name"], manifest.get("spec", {})
        kept: dict[str, Any] = {}
        if kind in MUTABLE:
            kept = {field: value for field, value in spec.items() if field not in MUTABLE[kind]}
        elif kind in FIXED:
            kept = {field: spec[field] for field in FIXED[kind] if field in spec}
        elif kind in ("RoleBinding", "ClusterRoleBinding"):
            kept = {"roleRef": manifest["roleRef"]}
        else:
            continue
        if kind == "Secret":
            kept = {"type": manifest["type"], "keys": sorted([*manifest.get("data", {}), *manifest["stringData"]])}
        found[kind, name] = kept
    return found


def unpack(package: Path, folder: Path) -> Path:
    with tarfile.open(package) as archive:
        archive.extractall(folder, filter="data")
    return folder / "sqlclimb"


def differences(before: list[Manifest], after: list[Manifest]) -> dict[tuple[str, str], str]:
    """What an upgrade may not do. A Job may go: a new one has a new name."""
    old, new = identity(before), identity(after)
    return {
        key: f"{kept} became {new.get(key, 'nothing')}"
        for key, kept in old.items()
        if new.get(key) != kept and not (key[0] == "Job" and key not in new)
    }


@pytest.mark.parametrize("apis", [OPERATORS, ()], ids=["operators", "plain"])
@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow) if MODES[mode] else mode for mode in MODES]
)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.stem)
def test_an_upgrade_changes_nothing_that_may_not_change(
    package: Path, preset: str, mode: str, apis: tuple[str, ...], tmp_path: Path
) -> None:
    chart = unpack(package, tmp_path)
    before = render(preset, chart=chart, values=MODES[mode], apis=apis)
    # with the values file that came with the old chart, which its user has copied
    own = yaml.safe_load((chart / f"values-{preset}.yaml").read_text())
    after = render(values=merged(own, MODES[mode]), apis=apis, upgrade=True)
    assert differences(before, after).keys() == CHANGED.keys()


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """As helm merges values files."""
    both = {name: merged(first[name], second[name]) for name in first.keys() & second.keys() if _is_map(second[name])}
    return first | second | both


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("storage.yaml", "  accessModes:", "  volumeMode: Block\n  accessModes:", "PersistentVolumeClaim"),
        ("_names.tpl", "app.kubernetes.io/component: {{", "component: {{", "Deployment"),
        ("engine.yaml", "podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady", "StatefulSet"),
        ("secrets.yaml", "stringData: {auth_token:", "stringData: {token:", "Secret"),
        ("engine.yaml", "clusterIP: None", "clusterIP: 10.0.0.1", "Service"),
        ("_pods.tpl", "kind: Role, name: {{ $name }}}", "kind: ClusterRole, name: edit}", "RoleBinding"),
    ],
)
def test_a_change_that_kubernetes_refuses_is_found(file: str, old: str, new: str, found: str, tmp_path: Path) -> None:
    changed = tmp_path / "sqlclimb"
    shutil.copytree(CHART, changed)
    text = (changed / "templates" / file).read_text()
    assert old in text
    (changed / "templates" / file).write_text(text.replace(old, new))
    kinds = {kind for kind, _ in differences(render("8xh100"), render("8xh100", chart=changed, upgrade=True))}
    assert found in kinds


def test_a_chart_that_differs_from_its_package_has_a_new_version(tmp_path: Path) -> None:
    assert PACKAGES, "helm package deploy/helm/sqlclimb --destination tests/deploy/data"
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    same = [package for package in PACKAGES if package.stem == f"sqlclimb-{version}"]
    if same:
        now = tmp_path / "now"
        assert run_helm("package", str(CHART), "--destination", str(now)).returncode == 0
        old, new = unpack(same[0], tmp_path / "old"), unpack(now / same[0].name, tmp_path / "new")
        for path in (path.relative_to(new) for path in new.rglob("*") if path.is_file()):
            assert (old / path).read_text() == (new / path).read_text(), f"{path}: raise the version in Chart.yaml"


def test_an_old_name_of_an_image_is_refused_and_its_note_stands() -> None:
    done = template(values={"images": {"digests": {"trainer": "sha256:" + "a" * 64}}})
    assert done.returncode != 0 and "trainer" in done.stderr
    note = (CHART.parents[2] / "docs/kubernetes-operate.md").read_text()
    assert "### From chart 0.1" in note and "images.digests.trainer" in note


def test_a_new_chart_restarts_no_pod_by_its_version(tmp_path: Path) -> None:
    """Else each upgrade would load every model anew, and replace every Ray cluster."""
    newer = tmp_path / "sqlclimb"
    shutil.copytree(CHART, newer)
    text = (newer / "Chart.yaml").read_text()
    (newer / "Chart.yaml").write_text(text.replace("version: ", "version: 9", 1))

    def running(chart: Path) -> list[Manifest]:
        manifests = render("8xh100", chart=chart)
        return [
            each["spec"] for each in [*of_kind(manifests, *FIXED, *MUTABLE), *embedded(manifests)] if "spec" in each
        ]

    assert running(CHART) == running(newer)


@pytest.mark.parametrize(
    ("component", "values"),
    [
        ("verifier", {"verifier": {"sandbox": {"dataSize": "1536Mi"}}}),
        ("trainer", {"trainer": {"job": {"ttlSecondsAfterFinished": 60}}}),
    ],
)
def test_a_template_that_a_service_reads_at_its_start_restarts_it(component: str, values: dict[str, Any]) -> None:
    def annotations(**options: Any) -> Any:
        manifests = render("8xh100", **options)
        (found,) = [each for each in of_kind(manifests, "Deployment") if each["metadata"]["name"].endswith(component)]
        assert embedded(manifests)
        return found["spec"]["template"]["metadata"]["annotations"]

    assert annotations() != annotations(values=values)
    assert annotations() == annotations(values={"author": {"replicas": 1}})


def migration(**options: Any) -> Manifest:
    (job,) = [job for job in of_kind(render(**options), "Job") if "migrate" in job["metadata"]["name"]]
    metadata: Manifest = job["metadata"]
    return metadata


def test_migrations_run_before_an_upgrade_and_before_an_install_on_a_database_that_exists() -> None:
    external = {"database": {"mode": "external", "external": {"existingSecret": "db", "cidrs": ["10.0.0.5/32"]}}}
    for options in ({"upgrade": True}, {"values": external}):
        hook = migration(**options)["annotations"]
        assert hook["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert "annotations" not in migration(), "a bundled database does not exist before its release"


@pytest.mark.parametrize("values", [{"images": {"tag": "0.2.0"}}, {"commonLabels": {"team": "data"}}])
def test_another_pod_makes_a_new_migration_job(values: dict[str, Any]) -> None:
    """A Job's Pod is immutable, and tools that render without a cluster see every upgrade as an install."""
    assert migration()["name"] != migration(values=values)["name"]


def test_what_holds_work_survives_an_uninstall() -> None:
    for manifest in of_kind(render("multi-node"), "PersistentVolumeClaim", "Secret", "Cluster"):
        assert manifest["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", manifest["metadata"]["name"]
