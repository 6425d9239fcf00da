"""The few calls of the Kubernetes API that services make from inside a cluster. Blocking; thread-safe.

Lists instead of watches: what we look after is small, and a list can neither miss an event nor end with `410 Gone`.
"""

import json
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

Manifest = dict[str, Any]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts a Pod's token, namespace and the API's certificate authority."""

REQUEST_SECONDS = 15.0


class KubernetesUnavailable(Exception):
    """The API gave no usable answer: nothing is known of what was asked, and a change may have happened."""


class KubernetesRefused(Exception):
    """The API says no (forbidden, invalid, over quota); the message holds its words."""


class KubernetesApi:
    """One namespace of a cluster. Every call raises KubernetesUnavailable or KubernetesRefused."""

    def __init__(self, url: str, namespace: str, token_file: Path | None = None, authority: Path | None = None) -> None:
        self.namespace = namespace
        self._token_file = token_file
        verify = ssl.create_default_context(cafile=str(authority)) if authority else True
        self._client = httpx.Client(base_url=url, timeout=REQUEST_SECONDS, verify=verify)

    @classmethod
    def in_cluster(cls) -> "KubernetesApi":
        """The API of the cluster that this process's Pod is in. Raises KubernetesUnavailable outside of one."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (ACCOUNT / "token").exists():
            raise KubernetesUnavailable("this process is in no Pod with a service account's token")
        address = f"[{host}]" if ":" in host else host
        namespace = (ACCOUNT / "namespace").read_text().strip()
        return cls(f"https://{address}:{port}", namespace, ACCOUNT / "token", ACCOUNT / "ca.crt")

    def version(self) -> str:
        """E.g. `v1.33.1`."""
        answer: Manifest = self._call("GET", "/version").json()
        return str(answer["gitVersion"])

    def create(self, resource: str, manifest: Manifest) -> bool:
        """Create an object of `resource` (`api/v1/pods`, `apis/ray.io/v1/rayjobs`). False: one of its name exists."""
        return self._call("POST", self._path(resource), manifest, expected=(409,)).status_code != 409

    def get(self, resource: str, name: str) -> Manifest | None:
        """An object; None when there is none."""
        response = self._call("GET", self._path(resource, name), expected=(404,))
        return None if response.status_code == 404 else response.json()

    def find(self, resource: str, labels: dict[str, str]) -> list[Manifest]:
        """All objects with these labels."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        answer = self._call("GET", f"{self._path(resource)}?labelSelector={quote(selector)}").json()
        items: list[Manifest] = answer["items"]
        return items

    def delete(self, resource: str, name: str, grace_seconds: int | None = None) -> None:
        """Ask for its end and that of all it owns; no error when it is gone or already ending."""
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        self._call("DELETE", self._path(resource, name), options, expected=(404, 409))

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _path(self, resource: str, name: str = "") -> str:
        group, _, plural = resource.rpartition("/")
        path = f"/{group}/namespaces/{self.namespace}/{plural}"
        return f"{path}/{name}" if name else path

    def _call(
        self, method: str, path: str, body: Manifest | None = None, expected: tuple[int, ...] = ()
    ) -> httpx.Response:
        headers = {"content-type": "application/json"}
        try:
            if self._token_file is not None:  # Kubernetes replaces it every hour
                headers["authorization"] = f"Bearer {self._token_file.read_text().strip()}"
            content = None if body is None else json.dumps(body)
            response = self._client.request(method, path, content=content, headers=headers)
        except (httpx.TransportError, OSError) as error:
            raise KubernetesUnavailable(f"the Kubernetes API does not answer: {type(error).__name__}") from error
        if response.status_code < 300 or response.status_code in expected:
            return response
        words = f"the Kubernetes API answered {response.status_code} to {method} {path}: {_message(response)}"
        if response.status_code >= 500 or response.status_code in (401, 408, 429):
            raise KubernetesUnavailable(words)
        raise KubernetesRefused(words)


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
