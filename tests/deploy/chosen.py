"""A values file that chooses everything a values file may choose, and finding manifests by their names."""

from typing import Any

from tests.deploy.manifests import Manifest, PodTemplate, embedded, of_kind, pod_templates

PLACEMENT: dict[str, Any] = {
    "nodeSelector": {"pool": "sql"},
    "tolerations": [{"key": "pool", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "urgent",
}
OWN: dict[str, Any] = {"extraEnv": [{"name": "OWN", "value": "x"}], "podAnnotations": {"own/annotation": "y"}}


SANDBOX_PLACEMENT = ("nodeSelector", "tolerations", "priorityClassName")

GANG = {"ray.io/gang-scheduling-enabled": "true"}

CHOSEN: dict[str, Any] = {
    "auth": {"existingSecret": "tokens"},
    "ray": {
        "auth": {"existingSecret": "ray"},
        "gcsFaultTolerance": {"enabled": True, "redisAddress": "redis:6379", "existingSecret": "redis"},
    },
    "database": {"bundled": PLACEMENT | {"existingSecret": "pg", "backup": {"enabled": True, "keep": 2}}},
    "author": PLACEMENT | OWN | {"teacherSecret": "teachers"},
    "inference": PLACEMENT | OWN,
    "rollout": PLACEMENT | OWN,
    "verifier": PLACEMENT
    | OWN
    | {
        "sandbox": {name: PLACEMENT[name] for name in SANDBOX_PLACEMENT}
        | {"runtimeClassName": "gvisor", "dataSize": "512Mi", "deadlineSeconds": 600}
    },
    "engine": PLACEMENT | OWN | {"startupSeconds": 3600},
    "trainer": PLACEMENT
    | OWN
    | {
        "job": PLACEMENT
        | OWN
        | {"kueue": {"queueName": "gpus"}, "podLabels": GANG, "schedulerName": "yunikorn"}
        | {"ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 900}
    },
    "model": {"hubTokenSecret": "hub"},
    "images": {"digests": {"author": "sha256:" + "a" * 64}},
    "artifacts": {"retention": {"checkpointDays": 30}},
    "ingress": {"enabled": True, "host": "climb.example.com", "tlsSecret": "cert", "className": "nginx"},
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-own"}}],
}
"""What a values file may choose, all at once."""


def named(manifests: list[Manifest], kind: str, suffix: str) -> Manifest:
    """The one manifest of a kind whose name ends so."""
    (found,) = [each for each in of_kind(manifests, kind) if each["metadata"]["name"].endswith(suffix)]
    return found


def rayjob(manifests: list[Manifest]) -> Manifest:
    """What the trainer is given to make a run's job of."""
    (job,) = [each for each in embedded(manifests) if each["kind"] == "RayJob"]
    return job


def pods_of(manifests: list[Manifest], component: str) -> list[PodTemplate]:
    return [pod for pod in pod_templates(manifests) if pod.component == component]
