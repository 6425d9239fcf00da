"""Strict schemas of the custom resources that the chart writes: the fields it uses, and no others.

Checked against the published definitions when SQLCLIMB_CRDS names a folder of them (`*.yaml`): those are megabytes that
the project does not carry. Pods inside are checked as Pods.
"""

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string", "minLength": 1}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
FREE: Schema = {"type": "object"}


def closed(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def listed(item: Schema) -> Schema:
    """A list that is not empty."""
    return {"type": "array", "items": item, "minItems": 1}


def texts() -> Schema:
    """Names to strings."""
    return {"type": "object", "additionalProperties": {"type": "string"}}


_GROUP = {"rayStartParams": texts(), "template": closed({"metadata": FREE, "spec": FREE})}
_RAY_CLUSTER = closed(
    {
        "rayVersion": STRING,
        "authOptions": closed({"mode": {"enum": ["token"]}, "secretName": STRING}),
        "headGroupSpec": closed(_GROUP),
        "workerGroupSpecs": listed(
            closed(_GROUP | {"groupName": STRING, "replicas": INTEGER, "minReplicas": INTEGER, "maxReplicas": INTEGER})
        ),
    },
    {
        "enableInTreeAutoscaling": BOOLEAN,
        "autoscalerOptions": closed(
            {
                "upscalingMode": {"enum": ["Default", "Aggressive", "Conservative"]},
                "idleTimeoutSeconds": INTEGER,
                "securityContext": FREE,
                "resources": FREE,
            }
        ),
        "gcsFaultToleranceOptions": closed({"redisAddress": STRING}, {"redisPassword": closed({"valueFrom": FREE})}),
    },
)
_RULE = closed(
    {"alert": STRING, "expr": STRING, "for": STRING, "labels": texts(), "annotations": texts()},
)
_ENDPOINT = closed({"port": STRING, "interval": STRING}, {"honorLabels": BOOLEAN})
_SELECTION = {"selector": closed({"matchLabels": texts()}, {"matchExpressions": listed(FREE)})}

SPECS: dict[tuple[str, str], Schema] = {
    ("ray.io/v1", "RayService"): closed(
        {
            "serveConfigV2": STRING,
            "rayClusterConfig": _RAY_CLUSTER,
            "upgradeStrategy": closed({"type": {"enum": ["NewCluster", "None"]}}),
        }
    ),
    ("ray.io/v1", "RayJob"): closed(
        {
            "entrypoint": STRING,
            "submissionMode": {"enum": ["HTTPMode"]},
            "suspend": BOOLEAN,
            "backoffLimit": INTEGER,
            "activeDeadlineSeconds": INTEGER,
            "shutdownAfterJobFinishes": BOOLEAN,
            "ttlSecondsAfterFinished": INTEGER,
            "rayClusterSpec": _RAY_CLUSTER,
        }
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): closed(_SELECTION | {"endpoints": listed(_ENDPOINT)}),
    ("monitoring.coreos.com/v1", "PodMonitor"): closed(_SELECTION | {"podMetricsEndpoints": listed(_ENDPOINT)}),
    ("monitoring.coreos.com/v1", "PrometheusRule"): closed(
        {"groups": listed(closed({"name": STRING, "rules": listed(_RULE)}))}
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): closed(
        {
            "scaleTargetRef": closed({"apiVersion": STRING, "kind": STRING, "name": STRING}),
            "minReplicaCount": INTEGER,
            "maxReplicaCount": INTEGER,
            "cooldownPeriod": INTEGER,
            "triggers": listed(closed({"type": {"enum": ["prometheus"]}, "metadata": texts()})),
        }
    ),
    ("postgresql.cnpg.io/v1", "Cluster"): closed(
        {
            "instances": INTEGER,
            "inheritedMetadata": closed({"labels": texts()}),
            "bootstrap": closed({"initdb": closed({"database": STRING, "owner": STRING})}),
            "storage": closed({"size": STRING}, {"storageClass": STRING}),
        },
        {
            "backup": closed(
                {
                    "retentionPolicy": STRING,
                    "barmanObjectStore": closed(
                        {"destinationPath": STRING}, {"endpointURL": STRING, "s3Credentials": FREE}
                    ),
                }
            )
        },
    ),
}


def schema_of(api_version: str, kind: str) -> Schema | None:
    """The schema of a whole custom resource; None for one that the chart does not write."""
    spec = SPECS.get((api_version, kind))
    return spec and closed({"apiVersion": STRING, "kind": STRING, "metadata": FREE, "spec": spec})
