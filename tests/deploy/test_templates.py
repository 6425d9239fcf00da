"""The chart renders valid manifests: all presets, Kubernetes versions, helm versions, with and without operators."""

import itertools

import pytest

from tests.deploy.checking import check, check_all
from tests.deploy.helm import CHART, KUBERNETES, OPERATORS, PACKAGES, PRESETS, render, run_helm, template

HELMS = tuple(PACKAGES)
ONE_FAST = [pytest.param(HELMS[0], marks=pytest.mark.slow), HELMS[1]]
"""Both helms, the older one outside CI's short set."""


@pytest.mark.parametrize("version", ONE_FAST)
@pytest.mark.parametrize("preset", PRESETS)
def test_lint_finds_nothing(preset: str, version: str) -> None:
    done = run_helm("lint", "--strict", str(CHART), "--values", str(CHART / f"values-{preset}.yaml"), version=version)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout and "[ERROR]" not in done.stdout


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_renders_valid_manifests(preset: str) -> None:
    check_all(render(preset), "1.33")


def test_the_defaults_render_valid_manifests_without_any_operator() -> None:
    manifests = render(None, apis=())
    check_all(manifests, "1.33")
    assert not {manifest["kind"] for manifest in manifests} & {"RayService", "ServiceMonitor", "PrometheusRule"}


def test_both_helms_render_the_same() -> None:
    values = {"auth": {"existingSecret": "t"}, "ray": {"auth": {"existingSecret": "r"}}, "database": {"mode": "cnpg"}}
    first, second = (render("8xh100", values=values, version=version) for version in HELMS)
    assert sorted(map(repr, first)) == sorted(map(repr, second))


@pytest.mark.slow
@pytest.mark.parametrize("version", HELMS)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_everywhere(preset: str, kubernetes: str, version: str) -> None:
    """With every subset of operators that matters: none, each alone, all but each, all."""
    alone = [(api,) for api in OPERATORS]
    without = [tuple(other for other in OPERATORS if other != api) for api in OPERATORS]
    for apis in [(), *alone, *without, OPERATORS]:
        check_all(render(preset, version=version, kubernetes=kubernetes, apis=apis), kubernetes)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"verifer": {}}, "verifer"),
        ({"verifier": {"settings": {"row_cpa": 1}}}, "row_cpa"),
        ({"verifier": {"settings": {"row_cap": 0}}}, "row_cap"),
        ({"images": {"tag": "latest"}}, "images.tag: latest is another image tomorrow"),
        ({"images": {"registry": "https://registry.example.com"}}, "images.registry"),
        ({"images": {"digests": {"trainer": "sha256:" + "a" * 64}}}, "images.digests"),
        ({"verifier": {"replicas": "2"}}, "verifier.replicas"),
        ({"engine": {"replicas": 0}}, "engine.replicas"),
        ({"author": {"settings": {"anthropic_api_key": "x"}}}, "anthropic_api_key"),
        ({"domains": {"configMaps": ["shop", "shop"]}}, "domains.configMaps"),
        (
            {"engine": {"colocated": True, "settings": {"gpu_memory_share": 1.2}}},
            "engine.settings.gpu_memory_share",
        ),
        (
            {"ray": {"mode": "pod"}, "engine": {"colocated": True}},
            "engine.settings.gpu_memory_share: write which share",
        ),
        (
            {
                "ray": {"mode": "pod"},
                "engine": {"colocated": True, "settings": {"gpu_memory_share": 0.25}, "replicas": 2},
            },
            "engine.replicas: a colocated engine is one",
        ),
        (
            {"author": {"extraEnv": [{"name": "SQLCLIMB_DB", "value": "x"}]}},
            "author.extraEnv: sets SQLCLIMB_DB again",
        ),
        (
            {
                "rollout": {"extraEnv": [{"name": "HTTPS_PROXY", "value": "a"}]},
                "trainer": {"job": {"extraEnv": [{"name": "HTTPS_PROXY", "value": "b"}]}},
                "ray": {"mode": "pod"},
            },
            "rollout.extraEnv: sets HTTPS_PROXY again",
        ),
        (
            {"commonLabels": {"app.kubernetes.io/name": "mine"}},
            "commonLabels: app.kubernetes.io/name is the chart's own",
        ),
        (
            {"trainer": {"job": {"podLabels": {"app.kubernetes.io/component": "mine"}}}},
            "trainer.job.podLabels: app.kubernetes.io/component is the chart's own",
        ),
        ({"fullnameOverride": "a" * 40}, "fullnameOverride: choose a name of at most 39 characters"),
        ({"ingress": {"enabled": True}}, "ingress.host: name the domain"),
        ({"model": {"s3Uri": "s3://b/m"}}, "model.path: name the folder that model.s3Uri is copied to"),
        (
            {"verifier": {"sandbox": {"dataSize": "4Gi", "resources": {"limits": {"memory": "2500M"}}}}},
            "verifier.sandbox.dataSize: is memory",
        ),
        (
            {"ray": {"mode": "pod"}, "trainer": {"job": {"kueue": {"queueName": "q"}}}},
            "trainer.job.kueue.queueName: runs are RayJobs",
        ),
        (
            {"ray": {"mode": "pod", "gcsFaultTolerance": {"enabled": True, "redisAddress": "r:1"}}},
            "ray.gcsFaultTolerance.enabled: only KubeRay",
        ),
        (
            {"database": {"external": {"existingSecret": "dsn"}}},
            "database.external.existingSecret: names a database, and database.mode is bundled",
        ),
        (
            {"database": {"mode": "external", "external": {"cidrs": ["10.0.0.5/32"]}}},
            "database.external.existingSecret: name the Secret that holds the DSN",
        ),
        (
            {"database": {"mode": "cnpg", "cnpg": {"backupDestination": "s3://b/x"}}},
            "database.cnpg.backupDestination: CloudNativePG needs the keys",
        ),
        ({"artifacts": {"s3": {"url": "s3://b/p"}}}, "artifacts.s3.url: names a bucket, and artifacts.store is pvc"),
        (
            {"artifacts": {"store": "s3", "s3": {"url": "s3://b/p", "endpointUrl": "http://minio:9000"}}},
            "networkPolicy.s3Port: artifacts.s3.endpointUrl answers on port 9000, and only 443 is let out",
        ),
        ({"verifier": {"resources": None}}, "resources"),
        ({"engine": {"gpus": 0}}, "engine.gpus: a cuda engine needs at least 1"),
        ({"engine": {"colocated": True}, "ray": {"mode": "kuberay"}}, "engine.colocated: needs ray.mode pod"),
        (
            {"database": {"mode": "external", "external": {"existingSecret": "x"}}},
            "database.external.cidrs: name where the database answers",
        ),
        ({"artifacts": {"store": "s3"}}, "artifacts.s3.url: write s3://bucket/prefix"),
        (
            {"artifacts": {"store": "s3", "s3": {"url": "s3://b"}, "backup": {"destination": "s3://b/c"}}},
            "artifacts.backup.destination: copies the shared claim",
        ),
        ({"rollout": {"worker": {"minReplicas": 9}}}, "rollout.worker.minReplicas: may not be above"),
    ],
)
@pytest.mark.parametrize("version", ONE_FAST)
def test_a_faulty_value_is_named(values: dict[str, object], sentence: str, version: str) -> None:
    done = template(values=values, version=version)
    assert done.returncode != 0
    place = sentence.replace(".", "/")  # as helm 4 writes a schema's complaint
    assert sentence in done.stderr or place in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("RayService", "spec.rayClusterConfig.headGroupSpec.rayStartParam", {}),
        ("RayService", "spec.rayClusterConfig.workerGroupSpecs.0.maxReplicas", "4"),
        ("ServiceMonitor", "spec.endpoints.0.intervall", "30s"),
        ("PrometheusRule", "spec.groups.0.rules.0.for", 5),
        ("ScaledObject", "spec.triggers.0.metadata", None),
        ("Cluster", "spec.storage.sizes", "1Gi"),
    ],
)
def test_a_custom_resource_that_its_operator_would_not_take_is_found(kind: str, field: str, value: object) -> None:
    manifest = next(each for each in render("multi-node") if each["kind"] == kind)
    *path, last = (int(part) if part.isdigit() else part for part in field.split("."))
    node = manifest
    for part in path:
        node = node[part]  # type: ignore[index]
    node[last] = value  # type: ignore[index]
    with pytest.raises(AssertionError, match=kind):
        check(manifest, "1.33")


@pytest.mark.slow
def test_combinations_of_modes_are_valid() -> None:
    external = {"mode": "external", "external": {"existingSecret": "db", "cidrs": ["10.0.0.5/32"], "port": 6432}}
    bundled = {"mode": "bundled", "bundled": {"backup": {"enabled": True}}}
    databases = [external, bundled, {"mode": "cnpg", "cnpg": {"backupDestination": "s3://b/x"}}]
    stores = [
        {
            "store": "pvc",
            "s3": {"url": "", "existingSecret": "s3"},
            "retention": {"checkpointDays": 30},
            "backup": {"destination": "s3://b/c"},
        },
        {"store": "s3", "s3": {"url": "s3://b/p", "existingSecret": "s3"}},
    ]
    for database, store, driver in itertools.product(databases, stores, ("pod", "local")):
        values = {
            "database": database,
            "artifacts": store,
            "verifier": {"sandbox": {"driver": driver, "runtimeClassName": "gvisor"}, "autoscaling": {"kind": "keda"}},
            "domains": {"existingClaim": "bundles", "configMaps": ["shop", "crm"]},
            "ingress": {"enabled": True, "host": "a.example", "tlsSecret": "cert", "annotations": {"a.b/c": "d"}},
            "model": {"s3Uri": "s3://models/x", "hubTokenSecret": "hub", "path": "/models/x"},
            "author": {"teacherSecret": "teachers"},
            "ray": {"gcsFaultTolerance": {"enabled": True, "redisAddress": "redis:6379", "existingSecret": "redis"}},
            "images": {"pullSecrets": ["pull"], "digests": {"verifier": "sha256:" + "a" * 64}},
            "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}],
        }
        check_all(render("multi-node", values=values), "1.34")
