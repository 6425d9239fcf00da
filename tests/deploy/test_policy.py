"""What every rendered Pod, Secret, image and network policy must satisfy (issue 8, A2)."""

import json
import re
from collections.abc import Iterator

import pytest

from services.author.settings import AuthorSettings
from services.inference.settings import EngineSettings, GatewaySettings
from services.rollout.settings import RolloutSettings
from services.trainer.settings import JobSettings, TrainerSettings
from services.verifier.settings import VerifierSettings
from tests.deploy.helm import CHART, OPERATORS, PRESETS, render
from tests.deploy.manifests import Manifest, PodTemplate, of_kind, pod_templates

OPERATED = {"kuberay": OPERATORS, "plain": ()}


EVERYTHING = {
    "database": {"bundled": {"backup": {"enabled": True}}},
    "artifacts": {"backup": {"destination": "s3://bucket/copies"}, "retention": {"checkpointDays": 30}},
    "ingress": {"enabled": True, "host": "climb.example.com"},
    "ray": {"gcsFaultTolerance": {"enabled": True, "redisAddress": "redis:6379", "existingSecret": "redis"}},
    "author": {"teacherSecret": "teachers"},
    "model": {"s3Uri": "s3://models/x", "path": "/models/x", "hubTokenSecret": "hub"},
}
"""What no preset switches on."""

FAST = {("8xh100", "kuberay"), ("cpu-trial", "plain")}
"""Between them they have every template but CloudNativePG's and the colocated engine's."""

COMBINATIONS = [
    pytest.param((preset, kind, {}), id=f"{preset}-{kind}", marks=() if (preset, kind) in FAST else pytest.mark.slow)
    for preset in PRESETS
    for kind in OPERATED
] + [pytest.param(("8xh100", "kuberay", EVERYTHING), id="everything")]


@pytest.fixture(scope="module", params=COMBINATIONS)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    preset, kind, values = request.param
    return render(preset, apis=OPERATED[kind], values=values)


def test_every_pod_meets_the_restricted_standard(manifests: list[Manifest]) -> None:
    """kubernetes.io/docs/concepts/security/pod-security-standards: `restricted`; and more: a read-only root."""
    volume_kinds = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}
    for pod in pod_templates(manifests):
        security = pod.spec["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] > 0, pod.origin
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, pod.origin
        assert not {"hostNetwork", "hostPID", "hostIPC"} & {name for name, value in pod.spec.items() if value}
        for volume in pod.spec.get("volumes", []):
            assert set(volume) - {"name"} <= volume_kinds | {"secret"}, (pod.origin, volume)
        for container in pod.containers:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, (pod.origin, container["name"])
            assert own["readOnlyRootFilesystem"] is True, (pod.origin, container["name"])
            assert own["capabilities"] == {"drop": ["ALL"]}, (pod.origin, container["name"])
            assert not own.get("privileged") and "procMount" not in own
            assert not any("hostPort" in port for port in container.get("ports", []))


def test_every_container_has_requests_limits_and_probes(manifests: list[Manifest]) -> None:
    for pod in pod_templates(manifests):
        runs_on = not pod.origin.startswith(("Job/", "CronJob/")) and pod.component != "smoke-test"
        for container in pod.containers:
            where = (pod.origin, container["name"])
            for side in ("requests", "limits"):
                assert {"cpu", "memory"} <= set(container["resources"][side]), where
            if runs_on and container in pod.spec["containers"]:
                assert {"readinessProbe", "livenessProbe"} <= set(container), where
                if pod.component != "sandbox":  # it answers in a second or is given up
                    assert "startupProbe" in container, where


def test_the_verifiers_account_is_held_to_sandbox_pods(manifests: list[Manifest]) -> None:
    """A Role cannot select by label. A CEL engine tried the expressions on the driver's own Pod, not here."""
    policies = of_kind(manifests, "ValidatingAdmissionPolicy")
    sandboxes = [pod for pod in pod_templates(manifests) if pod.component == "sandbox"]
    assert len(policies) == len(of_kind(manifests, "ValidatingAdmissionPolicyBinding")) == len(sandboxes)
    for policy, pod in zip(policies, sandboxes, strict=True):
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"].endswith("'system:serviceaccount:team:climb-sqlclimb-verifier'")
        labels, shape = (validation["expression"] for validation in policy["spec"]["validations"])
        assert all(f"['{name}'] == '{value}'" in labels for name, value in pod.labels.items())
        assert pod.spec["serviceAccountName"] in shape and pod.spec["containers"][0]["image"] in shape


def test_only_what_calls_kubernetes_holds_its_token(manifests: list[Manifest]) -> None:
    allowed = {"verifier", "trainer", "rollout"}
    holders = {pod.component for pod in pod_templates(manifests) if pod.spec.get("automountServiceAccountToken")}
    assert holders <= allowed
    assert all("automountServiceAccountToken" in pod.spec for pod in pod_templates(manifests))
    bound = {role["metadata"]["name"].removeprefix("climb-sqlclimb-") for role in of_kind(manifests, "Role")}
    assert bound == holders, "a token without a role, or a role without a token"
    for role in of_kind(manifests, "Role"):
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
            assert "secrets" not in rule["resources"]
    assert not of_kind(manifests, "ClusterRole", "ClusterRoleBinding")


def test_every_image_is_pinned(manifests: list[Manifest]) -> None:
    pinned = re.compile(r"^[a-z0-9][a-z0-9._:/-]*(@sha256:[0-9a-f]{64}|:[A-Za-z0-9_][A-Za-z0-9_.-]*)$")
    for pod in pod_templates(manifests):
        for container in pod.containers:
            assert pinned.match(container["image"]), container["image"]
            assert not container["image"].endswith(":latest")


def references(pod: PodTemplate) -> Iterator[tuple[str, str]]:
    """Secrets and ConfigMaps that a Pod names."""
    for volume in pod.spec.get("volumes", []):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for container in pod.containers:
        for variable in container.get("env", []):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                yield "Secret", reference["name"]
        for source in container.get("envFrom", []):
            yield "Secret", source["secretRef"]["name"]


def test_a_private_registry_is_asked_with_its_credentials_by_every_pod() -> None:
    values = {"images": {"pullSecrets": ["registry"]}} | EVERYTHING
    for pod in pod_templates(render("8xh100", values=values)):
        assert pod.spec["imagePullSecrets"] == [{"name": "registry"}], pod.origin


BROUGHT = {
    ("Secret", "sqlclimb-s3"): "artifacts.s3.existingSecret",
    ("Secret", "climb-sqlclimb-database-app"): "`…-database-app`",
    ("Secret", "teachers"): "author.teacherSecret",
    ("Secret", "hub"): "model.hubTokenSecret",
}
"""Not made by the chart: under which words docs/kubernetes-install.md says what each holds."""


def test_a_secret_that_the_chart_does_not_make_is_documented() -> None:
    page = (CHART.parents[2] / "docs/kubernetes-install.md").read_text()
    table = page.partition("## Secrets")[2]
    for words in (
        *BROUGHT.values(),
        "auth.existingSecret",
        "ray.auth.existingSecret",
        "database.bundled.existingSecret",
    ):
        assert words in table, words


def test_what_a_pod_names_exists(manifests: list[Manifest]) -> None:
    made = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    for pod in pod_templates(manifests):
        for reference in references(pod):
            assert reference in made | BROUGHT.keys(), (pod.origin, reference)
        account = pod.spec.get("serviceAccountName")
        assert account is None or ("ServiceAccount", account) in made, (pod.origin, account)
        mounted = {mount["name"] for container in pod.containers for mount in container.get("volumeMounts", [])}
        claimed = {"data"} if pod.component == "database" else set()  # the StatefulSet's own claim
        assert mounted == {volume["name"] for volume in pod.spec.get("volumes", [])} | claimed, pod.origin


def test_selectors_find_their_pods_and_services_their_ports(manifests: list[Manifest]) -> None:
    pods = list(pod_templates(manifests))
    for service in of_kind(manifests, "Service"):
        selector = service["spec"]["selector"]
        found = [pod for pod in pods if selector.items() <= pod.labels.items()]
        ports = {port["name"] for pod in found for container in pod.containers for port in container.get("ports", [])}
        assert found, service["metadata"]["name"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, service["metadata"]["name"]


SETTINGS = {
    "verifier": [VerifierSettings],
    "author": [AuthorSettings],
    "inference": [GatewaySettings],
    "engine": [EngineSettings],
    "trainer": [TrainerSettings],
    "trainer-job": [JobSettings],
    "ray-head": [RolloutSettings],
    "ray-worker": [RolloutSettings],
    "ray": [RolloutSettings, JobSettings],
    "migrate": [],
    "model": [],
    "smoke": [],
}
"""Container to the settings it reads."""


def test_every_setting_that_the_chart_writes_is_one_of_the_service(manifests: list[Manifest]) -> None:
    for pod in pod_templates(manifests):
        for container in pod.containers:
            name = "trainer-job" if pod.component == "trainer-job" else container["name"]
            written = [variable["name"] for variable in container.get("env", [])]
            assert len(written) == len(set(written)), (pod.origin, "a variable is written twice")
            ours = {variable for variable in written if variable.startswith("SQLCLIMB_")}
            if not ours or name in ("migrate", "smoke"):
                continue
            known = {f"SQLCLIMB_{field.upper()}" for model in SETTINGS[name] for field in model.model_fields}
            assert ours <= known, (pod.origin, ours - known)
            needed = {
                f"SQLCLIMB_{field_name.upper()}"
                for model in SETTINGS[name][:1]  # a job in Ray's Pod reads its own from a file
                for field_name, field in model.model_fields.items()
                if field.is_required()
            }
            assert needed <= ours, (pod.origin, needed - ours)


def test_no_gold_reaches_a_config_map_or_the_trainers_tokens(manifests: list[Manifest]) -> None:
    for manifest in of_kind(manifests, "ConfigMap"):
        if "smoke" not in manifest["metadata"]["name"]:
            assert not re.search(r"privileged\"|\"reference\"", json.dumps(manifest)), manifest["metadata"]["name"]
    for secret in of_kind(manifests, "Secret"):
        for name in ("trainer-job.json",):
            if name in secret.get("stringData", {}):
                tokens = json.loads(secret["stringData"][name])
                assert all(
                    "gold" not in entry["scopes"] and "admin" not in entry["scopes"] for entry in tokens.values()
                )


def test_no_secret_is_written_in_the_clear(manifests: list[Manifest]) -> None:
    secrets = [text for secret in of_kind(manifests, "Secret") for text in secret.get("stringData", {}).values()]
    plain = json.dumps([manifest for manifest in manifests if manifest["kind"] != "Secret"])
    assert secrets or not of_kind(manifests, "Secret")
    for text in secrets:
        assert text not in plain


def test_training_reads_golds_only_where_the_values_say_so() -> None:
    manifests = render("8xh100", values={"trainer": {"golds": True}})
    for pod in pod_templates(manifests):
        for container in pod.containers:
            settings = {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}
            if pod.component in ("trainer", "trainer-job"):
                assert settings["SQLCLIMB_GOLD_TOKEN_NAME"] == "golds"
                assert settings["SQLCLIMB_AUTHOR_URL"].endswith("-author:8002")
                assert "/domains" in settings["SQLCLIMB_DOMAINS"]
            else:
                assert "SQLCLIMB_GOLD_TOKEN_NAME" not in settings
    (secret,) = [made for made in of_kind(manifests, "Secret") if "trainer-job.json" in made.get("stringData", {})]
    held = {name: json.loads(text) for name, text in secret["stringData"].items() if name.endswith(".json")}
    assert {name for name, tokens in held.items() if "golds" in tokens} == {
        f"{service}.json" for service in ("author", "rollout", "trainer", "trainer-job")
    }
    assert held["trainer-job.json"]["golds"] == {"token": held["author.json"]["golds"]["token"], "scopes": ["gold"]}
