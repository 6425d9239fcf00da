"""Whether manifests are valid: Kubernetes' own by its schemas, custom ones by their published definitions."""

import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing

from tests.deploy.custom_resources import schema_of
from tests.deploy.manifests import Manifest, embedded, ray_pods

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate (dev extra) is missing")


def check_all(manifests: Sequence[Manifest], kubernetes: str) -> None:
    """Raises AssertionError naming the manifest and the field."""
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests]
    assert len(names) == len(set(names)), f"two manifests of one name: {sorted(names)}"
    for manifest in [*manifests, *embedded(manifests)]:
        check(manifest, kubernetes)


def check(manifest: Manifest, kubernetes: str) -> None:
    """One manifest."""
    kind, api_version = manifest["kind"], manifest["apiVersion"]
    custom = _custom_validator(api_version, kind)
    validator = custom or _kubernetes_validator(kubernetes, api_version, kind)
    error = jsonschema.exceptions.best_match(validator.iter_errors(manifest))
    if error is not None:
        path = ".".join(map(str, error.absolute_path))
        raise AssertionError(f"{kind}/{manifest['metadata']['name']} ({kubernetes}): {path}: {error.message[:500]}")
    cluster = manifest["spec"].get("rayClusterConfig") or manifest["spec"].get("rayClusterSpec") if custom else None
    for template in ray_pods(cluster) if cluster else []:
        named = {**template["metadata"], "name": f"{manifest['metadata']['name']}-ray"}
        check({"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}, kubernetes)


@functools.cache
def _definitions(kubernetes: str) -> "referencing.Registry[Any]":
    """The schemas that others refer to, parsed and crawled once."""
    text = (_folder(kubernetes) / "_definitions.json").read_text()
    return (referencing.Resource.from_contents(json.loads(text)) @ referencing.Registry()).crawl()


def _folder(kubernetes: str) -> Path:
    return Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{kubernetes}.0-local-strict"


@functools.cache
def _kubernetes_validator(kubernetes: str, api_version: str, kind: str) -> jsonschema.Draft202012Validator:
    """As `kubernetes_validate.validate` finds it, which reads 2 MB for each manifest."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    path = _folder(kubernetes) / f"{kind.lower()}-{group}.json"
    assert path.exists(), f"no schema of {api_version} {kind}"
    return jsonschema.Draft202012Validator(json.loads(path.read_text()), registry=_definitions(kubernetes))


@functools.cache
def _custom_validator(api_version: str, kind: str) -> jsonschema.Draft202012Validator | None:
    schema = schema_of(api_version, kind)
    return schema and jsonschema.Draft202012Validator(schema)
