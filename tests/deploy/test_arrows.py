"""The network policies are a default deny and exactly the design's arrows, each once at both ends."""

from typing import Any

import pytest

from tests.deploy.helm import render
from tests.deploy.manifests import Manifest, of_kind, pod_templates

Arrow = tuple[str, str, tuple[int, ...]]

SERVICES = {"verifier": 8001, "author": 8002, "inference": 8003, "rollout": 8004, "trainer": 8005}

COMMON: set[Arrow] = {
    ("author", "verifier", (8001,)),
    ("rollout", "verifier", (8001,)),
    ("rollout", "author", (8002,)),
    ("author", "rollout", (8004,)),
    ("rollout", "inference", (8003,)),
    ("trainer", "rollout", (8004,)),
    ("trainer", "inference", (8003,)),
    ("prometheus", "rollout", (8080,)),
    *(
        (caller, service, (port,))
        for caller in ("clients", "smoke-test", "prometheus")
        for service, port in SERVICES.items()
    ),
}
"""ARCHITECTURE.md's picture and table, and those who look."""

DATABASE = {(client, "database", (5432,)) for client in ("author", "rollout", "trainer", "inference", "migrations")}

ENGINE: set[Arrow] = {("inference", "engine", (8010,)), ("prometheus", "engine", (8010,))}

KUBERAY: set[Arrow] = {
    ("trainer-job", "rollout", (8004,)),
    ("trainer-job", "inference", (8003,)),
    ("trainer-job", "database", (5432,)),
    ("rollout", "rollout", ()),  # inside one Ray cluster
    ("trainer-job", "trainer-job", ()),
    ("kuberay-operator", "rollout", (8265, 8004)),
    ("kuberay-operator", "trainer-job", (8265,)),
    ("rollout", "kubernetes-api", (443, 6443)),  # Ray's autoscaler
    ("trainer", "kubernetes-api", (443, 6443)),
    ("prometheus", "trainer-job", (8080,)),
}

POD_RAY: set[Arrow] = {("rollout", "rollout", (8004,)), ("trainer", "rollout", (8265,))}

POD_SANDBOX: set[Arrow] = {("verifier", "sandbox", (5432,)), ("verifier", "kubernetes-api", (443, 6443))}

S3: set[Arrow] = {(client, "s3", (443,)) for client in ("inference", "trainer", "trainer-job")}

CNPG: set[Arrow] = {
    ("database", "database", (5432, 8000)),
    ("cnpg-operator", "database", (5432, 8000)),
    ("database", "kubernetes-api", (443, 6443)),
}

HUB: set[Arrow] = {("engine", "hub", (443,))}

VALUES: dict[str, Any] = {
    # every outside peer tells itself apart
    "networkPolicy": {
        "kubernetesApi": ["192.0.2.1/32"],
        "s3": ["192.0.2.2/32"],
        "redis": ["192.0.2.3/32"],
        "teachers": ["192.0.2.4/32"],
        "clients": [{"namespaceSelector": {"matchLabels": {"outside": "apps"}}}],
    }
}

SWITCHED_ON: dict[str, Any] = {
    "networkPolicy": VALUES["networkPolicy"] | {"endpoints": ["192.0.2.5/32"], "endpointsPorts": [443, 8000]},
    "trainer": {"golds": True},
    "ingress": {"enabled": True, "host": "climb.example.com", "services": ["rollout", "inference"]},
    "ray": {"gcsFaultTolerance": {"enabled": True, "redisAddress": "redis:6379"}},
    "artifacts": {"backup": {"destination": "s3://bucket/copies"}},
    "database": {"bundled": {"backup": {"enabled": True}}},
    "author": {"teacherSecret": "teachers"},
}
OPTIONAL: set[Arrow] = {
    ("ingress-controller", "rollout", (8004,)),
    ("ingress-controller", "inference", (8003,)),
    ("rollout", "redis", (6379,)),
    ("trainer-job", "redis", (6379,)),
    ("artifacts-backup", "s3", (443,)),
    ("backup", "database", (5432,)),
    ("author", "teachers", (443,)),
    ("rollout", "endpoints", (443, 8000)),
    ("trainer", "author", (8002,)),
    ("trainer-job", "author", (8002,)),
}

EXPECTED = {
    "cpu-trial": COMMON | DATABASE | ENGINE | POD_RAY,
    "1xh100": COMMON
    | DATABASE
    | POD_RAY
    | POD_SANDBOX
    | {("inference", "rollout", (8010,)), ("prometheus", "rollout", (8010,)), ("rollout", "hub", (443,))},
    "8xh100": COMMON | DATABASE | ENGINE | KUBERAY | POD_SANDBOX | HUB,
    "multi-node": COMMON | DATABASE | ENGINE | KUBERAY | POD_SANDBOX | HUB | S3 | CNPG,
}

OUTSIDE = {"192.0.2.1/32": "kubernetes-api", "192.0.2.2/32": "s3", "0.0.0.0/0": "hub"}
OUTSIDE |= {"192.0.2.3/32": "redis", "192.0.2.4/32": "teachers", "192.0.2.5/32": "endpoints"}


def peer_names(peers: list[Manifest]) -> set[str]:
    """What the peers of one rule stand for."""
    names = set()
    for peer in peers:
        labels = peer.get("podSelector", {}).get("matchLabels", {})
        if "ipBlock" in peer:
            names.add(OUTSIDE[peer["ipBlock"]["cidr"]])
        elif labels.get("app.kubernetes.io/name") in ("kuberay-operator", "cloudnative-pg"):
            names.add({"kuberay-operator": "kuberay-operator"}.get(labels["app.kubernetes.io/name"], "cnpg-operator"))
        elif labels.get("k8s-app") == "kube-dns":
            names.add("dns")
        elif labels.get("sqlclimb.io/client") or "namespaceSelector" in peer:
            namespace = peer.get("namespaceSelector", {}).get("matchLabels", {})
            known = {"monitoring": "prometheus", "ingress-nginx": "ingress-controller"}
            names.add(next((known[value] for value in namespace.values() if value in known), "clients"))
        else:
            assert labels["app.kubernetes.io/instance"] == "climb"
            names.add(labels["app.kubernetes.io/component"])
    return names


def arrows(policies: list[Manifest], direction: str) -> list[Arrow]:
    """Every arrow that the rules of one direction draw."""
    found = []
    for policy in policies:
        here = policy["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component")
        for rule in policy["spec"].get(direction) or []:
            (there,) = peer_names(rule["from" if direction == "ingress" else "to"])
            ports = tuple(port["port"] for port in rule.get("ports", []))
            found.append((there, here, ports) if direction == "ingress" else (here, there, ports))
    return [arrow for arrow in found if arrow[1] != "dns"]


CASES = [(preset, {}, expected) for preset, expected in EXPECTED.items()]
CASES.append(("8xh100", SWITCHED_ON, EXPECTED["8xh100"] | OPTIONAL))


@pytest.mark.parametrize(
    ("preset", "values", "expected"), CASES, ids=[preset + " and more" * bool(values) for preset, values, _ in CASES]
)
def test_the_policies_are_the_designs_arrows_and_no_other(
    preset: str, values: dict[str, Any], expected: set[Arrow]
) -> None:
    manifests = render(preset, values=VALUES | values)
    policies = of_kind(manifests, "NetworkPolicy")
    ours = {pod.component for pod in pod_templates(manifests)} | {"database"}
    for direction, end in (("ingress", 1), ("egress", 0)):
        drawn = arrows(policies, direction)
        assert len(drawn) == len(set(drawn)), "an arrow is drawn twice"
        assert set(drawn) == {arrow for arrow in expected if arrow[end] in ours}


@pytest.mark.parametrize("preset", EXPECTED)
def test_everything_is_denied_by_default_and_every_service_has_a_policy(preset: str) -> None:
    manifests = render(preset)
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in of_kind(manifests, "NetworkPolicy")}
    deny = policies["climb-sqlclimb-default-deny"]
    assert deny["policyTypes"] == ["Ingress", "Egress"] and not deny.get("ingress") and not deny.get("egress")
    for pod in pod_templates(manifests):
        assert deny["podSelector"]["matchLabels"].items() <= pod.labels.items(), pod.origin
    for service in of_kind(manifests, "Service"):
        selector = service["spec"]["selector"]
        matching = [spec for spec in policies.values() if spec["podSelector"]["matchLabels"] == selector]
        assert len(matching) == 1, service["metadata"]["name"]


def test_a_sandbox_reaches_nothing_and_only_the_verifier_reaches_it() -> None:
    policies = of_kind(render("8xh100"), "NetworkPolicy")
    (spec,) = [policy["spec"] for policy in policies if policy["metadata"]["name"].endswith("-sandbox")]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert not spec.get("egress")
    (rule,) = spec["ingress"]
    assert peer_names(rule["from"]) == {"verifier"} and rule["ports"] == [{"protocol": "TCP", "port": 5432}]
