"""What issue 8 asks of single manifests: start, readiness, placement, scaling, Ray's jobs, names, notes."""

from typing import Any

import pytest
import yaml

from shared.bundles.check import prompt_length
from shared.contracts.rollout import Regime
from shared.domain import load_bundle, system_prompt
from shared.settings import REPOSITORY
from tests.deploy.chosen import CHOSEN, GANG, OWN, PLACEMENT, SANDBOX_PLACEMENT, named, pods_of, rayjob
from tests.deploy.helm import CHART, OPERATORS, PRESETS, render, run_helm
from tests.deploy.manifests import Manifest, of_kind, pod_templates, ray_pods

SCALABLE = {"verifier", "author", "inference", "trainer", "engine", "rollout", "database"}


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render("8xh100")


@pytest.fixture(scope="module")
def chosen() -> list[Manifest]:
    return render("8xh100", values=CHOSEN)


def test_an_engine_may_load_as_long_as_the_values_say_and_the_gateway_is_ready_with_its_adapters(
    chosen: list[Manifest],
) -> None:
    (engine,) = pods_of(chosen, "engine")
    startup = engine.spec["containers"][0]["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 3600
    (gateway,) = pods_of(chosen, "inference")
    # `/readyz` fails while a ready adapter is on no engine: tests/inference
    assert gateway.spec["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/readyz"
    # an engine is not followed by the next one before the gateway has had time to restore its adapters
    assert named(chosen, "StatefulSet", "-engine")["spec"]["minReadySeconds"] >= 30


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_a_context_holds_the_prompt_of_the_domain_that_ships_and_a_reply(preset: str | None) -> None:
    prompt = system_prompt(load_bundle(REPOSITORY / "domains/shop"), Regime())
    containers = [box for pod in pod_templates(render(preset)) for box in pod.containers if box["name"] == "engine"]
    for container in containers:
        settings = {each["name"]: each.get("value") for each in container["env"]}
        tokens = prompt_length(prompt, None).tokens
        assert int(settings["SQLCLIMB_MAX_MODEL_LEN"]) >= tokens + 1024, tokens


def test_trainer_and_engine_share_one_gpu_as_two_containers_of_a_pod() -> None:
    manifests = render("1xh100", apis=())
    (pod,) = pods_of(manifests, "rollout")
    asked = {each["name"]: each["resources"]["limits"].get("nvidia.com/gpu.shared") for each in pod.containers}
    assert asked == {"ray": 1, "engine": 1}
    settings = {each["name"]: each.get("value") for each in pod.containers[1]["env"]}
    assert settings["SQLCLIMB_GPU_MEMORY_SHARE"] == "0.25"
    assert not of_kind(manifests, "StatefulSet") or not pods_of(manifests, "engine")


def test_pods_spread_over_nodes_and_are_not_all_evicted_at_once(manifests: list[Manifest]) -> None:
    for pod in pod_templates(manifests):
        if pod.component in SCALABLE | {"trainer-job"}:
            (spread,) = pod.spec["topologySpreadConstraints"]
            assert spread["topologyKey"] == "kubernetes.io/hostname" and spread["maxSkew"] == 1
            assert spread["labelSelector"]["matchLabels"].items() <= pod.labels.items(), pod.origin
    kept = {
        budget["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        for budget in of_kind(manifests, "PodDisruptionBudget")
    }
    assert kept == SCALABLE
    assert not of_kind(render("8xh100", values={"podDisruptionBudgets": {"enabled": False}}), "PodDisruptionBudget")


def test_a_component_goes_where_its_values_send_it_with_what_they_add(chosen: list[Manifest]) -> None:
    for component in ("verifier", "author", "inference", "engine", "rollout", "trainer", "trainer-job", "database"):
        found = pods_of(chosen, component)
        assert found
        for pod in found:
            assert {name: pod.spec[name] for name in PLACEMENT} == PLACEMENT, component
            if component != "database":
                assert OWN["extraEnv"][0] in pod.spec["containers"][0]["env"], component
    (sandbox,) = pods_of(chosen, "sandbox")
    assert all(sandbox.spec[name] == PLACEMENT[name] for name in SANDBOX_PLACEMENT)
    templates = [
        each["spec"]["template"]
        for each in of_kind(chosen, "Deployment", "StatefulSet")
        if not each["metadata"]["name"].endswith("-database")
    ]
    (service,) = of_kind(chosen, "RayService")
    templates += [*ray_pods(service["spec"]["rayClusterConfig"]), *ray_pods(rayjob(chosen)["spec"]["rayClusterSpec"])]
    for template in templates:
        assert OWN["podAnnotations"].items() <= template["metadata"]["annotations"].items(), template["metadata"]


def test_ray_in_one_pod_goes_to_the_gpus_that_its_runs_ask_for() -> None:
    (pod,) = pods_of(render(None, apis=()), "rollout")
    assert pod.containers[0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod.spec["tolerations"]


def test_the_verifier_scales_by_load_and_by_waiting_items_and_engines_by_waiting_sequences() -> None:
    (scaler,) = of_kind(render("multi-node"), "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "climb-sqlclimb-verifier"
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 8)
    manifests = render("multi-node", values={"verifier": {"autoscaling": {"kind": "keda", "target": 200}}})
    for component, kind, metric in (
        ("verifier", "Deployment", "sqlclimb_items_admitted"),
        ("engine", "StatefulSet", "sqlclimb_replica_waiting"),
    ):
        spec = named(manifests, "ScaledObject", f"-{component}")["spec"]
        assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": kind, "name": f"climb-sqlclimb-{component}"}
        (trigger,) = spec["triggers"]
        assert trigger["metadata"]["query"] == f'sum({metric}{{namespace="team"}})'
        # a scaler and a chart that both set replicas take turns undoing each other
        assert "replicas" not in named(manifests, kind, f"-{component}")["spec"]


def test_a_run_is_a_ray_job_that_nobody_but_the_trainer_starts_again(
    manifests: list[Manifest], chosen: list[Manifest]
) -> None:
    assert rayjob(chosen)["spec"]["ttlSecondsAfterFinished"] == 60
    assert rayjob(chosen)["spec"]["activeDeadlineSeconds"] == 900
    spec = rayjob(manifests)["spec"]
    assert spec["backoffLimit"] == 0 and spec["suspend"] is False
    assert spec["shutdownAfterJobFinishes"] is True
    head, worker = ray_pods(spec["rayClusterSpec"])
    limits = head["spec"]["containers"][0]["resources"]["limits"]
    assert "memory" in limits and "nvidia.com/gpu" not in limits
    assert spec["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-gpus"] == "0"
    assert worker["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert spec["rayClusterSpec"]["authOptions"] == {"mode": "token", "secretName": "climb-sqlclimb-ray-token"}
    assert "gcsFaultToleranceOptions" not in spec["rayClusterSpec"]


def test_queues_and_gang_schedulers_find_their_labels_on_the_job_itself(chosen: list[Manifest]) -> None:
    """KubeRay's schedulers, as Kueue, read the RayJob; others its Pods."""
    job = rayjob(chosen)
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert GANG.items() <= job["metadata"]["labels"].items()
    for pod in ray_pods(job["spec"]["rayClusterSpec"]):
        assert GANG.items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["schedulerName"] == "yunikorn"


def test_rays_state_lies_in_redis_by_value(chosen: list[Manifest]) -> None:
    (service,) = of_kind(chosen, "RayService")
    for cluster in (service["spec"]["rayClusterConfig"], rayjob(chosen)["spec"]["rayClusterSpec"]):
        options = cluster["gcsFaultToleranceOptions"]
        assert options["redisAddress"] == "redis:6379"
        assert options["redisPassword"] == {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}}


def test_rollouts_get_more_workers_as_groups_wait(manifests: list[Manifest]) -> None:
    (service,) = of_kind(manifests, "RayService")
    cluster = service["spec"]["rayClusterConfig"]
    assert cluster["enableInTreeAutoscaling"] is True
    (group,) = cluster["workerGroupSpecs"]
    assert (group["minReplicas"], group["maxReplicas"]) == (1, 4)
    assert cluster["autoscalerOptions"]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_names_fit_whatever_the_release_is_called() -> None:
    """Controllers append to them: 11 characters to a CronJob's and to a StatefulSet's, 6 to a RayService's."""
    backups = {
        "database": {"bundled": {"backup": {"enabled": True}}},
        "artifacts": {"backup": {"destination": "s3://bucket/x"}, "retention": {"checkpointDays": 3}},
    }
    limits = {"CronJob": 52, "Service": 63, "RayService": 47, "StatefulSet": 52, "Job": 63, "Deployment": 63}
    for length, preset, apis in ((39, "8xh100", OPERATORS), (40, "cpu-trial", ())):
        for manifest in render(preset, values=backups | {"fullnameOverride": "a" * length}, apis=apis):
            name = manifest["metadata"]["name"]
            assert len(name) <= limits.get(manifest["kind"], 253), (manifest["kind"], name)


@pytest.mark.parametrize(
    ("preset", "values", "sentences"),
    [
        ("cpu-trial", {}, ["helm test climb", "get secret climb-sqlclimb-tokens", "Risk: the bundled database"]),
        (
            "8xh100",
            {
                "ray": {"mode": "pod"},
                "ingress": {"enabled": True, "host": "a.example"},
                "networkPolicy": {"enabled": False},
            },
            [
                "Risk: the ingress has no certificate",
                "Risk: there are no network policies",
                "Risk: training runs inside",
            ],
        ),
    ],
)
def test_the_notes_give_three_commands_and_the_risks_of_what_was_chosen(
    preset: str, values: dict[str, Any], sentences: list[str]
) -> None:
    argv = ["install", "climb", str(CHART), "--dry-run=client", "--values", str(CHART / f"values-{preset}.yaml")]
    done = run_helm(*argv, "--values", "-", stdin=yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert all(f"\n  {number}. " in notes for number in (1, 2, 3))
    for sentence in sentences:
        assert sentence in notes


def test_objects_of_ones_own_are_templated(chosen: list[Manifest]) -> None:
    assert ("ConfigMap", "climb-own") in {(each["kind"], each["metadata"]["name"]) for each in chosen}


def test_a_certificate_covers_every_host_of_the_ingress(chosen: list[Manifest]) -> None:
    (made,) = of_kind(chosen, "Ingress")
    hosts = [rule["host"] for rule in made["spec"]["rules"]]
    assert hosts == [f"{service}.climb.example.com" for service in ("rollout", "trainer", "inference", "author")]
    assert made["spec"]["tls"] == [{"secretName": "cert", "hosts": hosts}]
    backend = made["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "climb-sqlclimb-rollout-serve-svc", "port": {"number": 8004}}
