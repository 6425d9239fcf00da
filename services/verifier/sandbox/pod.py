"""The cluster's driver: each sandbox is a Pod of its own, made from a template that the chart writes.

Nothing leaks: the verifier's Pod owns the sandboxes' (they end with it), a verifier that starts removes what an earlier
one of the same Pod left, a deletion that the API did not take is tried until it does, and Kubernetes ends a Pod at its
deadline whatever happens. One list every POLL_SECONDS shows Pods that died (evicted, out of memory, node lost).
"""

import json
import logging
import secrets
import threading
import time
import uuid
from copy import deepcopy
from pathlib import Path

import psycopg
import stamina

from services.verifier.sandbox.loading import OWNER, Address, database_names, load
from services.verifier.sandbox.pod_server import LOGINS_VARIABLE, scram_verifier
from services.verifier.sandbox.protocol import Role, SandboxFailed
from shared.domain import Bundle
from shared.kubernetes import KubernetesApi, KubernetesRefused, KubernetesUnavailable, Manifest

log = logging.getLogger(__name__)

PODS = "api/v1/pods"

VERIFIER_LABEL = "sqlclimb.io/verifier"
"""Which verifier's Pod a sandbox belongs to."""

START_SECONDS = 180.0
"""Until a Pod runs and answers: a node may have to pull the image, or to join."""

API_PATIENCE_SECONDS = 45.0
"""A control plane that fails over is away for about half a minute."""

START_POLL_SECONDS = 0.25
POLL_SECONDS = 2.0

HOPELESS = {
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "ImagePullBackOff",
    "CrashLoopBackOff",
}
"""Reasons of a waiting container that more waiting does not mend."""

OVER = ("Succeeded", "Failed")


class PodCluster:
    """A running sandbox Pod."""

    def __init__(self, driver: "PodDriver", name: str, address: Address, databases: dict[str, str]) -> None:
        self.name = name
        self._driver = driver
        self._address = address
        self._databases = databases
        self.data_id = uuid.uuid4().hex
        """Of its own: each Pod loads the seeds anew."""

    @property
    def host(self) -> str:
        """The Pod's address."""
        return self._address.host

    @property
    def password(self) -> str | None:
        """Of every role, this Pod's alone."""
        return self._address.password

    def database(self, seed: str) -> str:
        """The database that holds a seed."""
        return self._databases[seed]

    def alive(self) -> bool:
        """As last seen."""
        return self._driver.is_alive(self.name)

    def overuse(self) -> str:
        """Nothing: the Pod's limits are enforced by Kubernetes."""
        return ""

    def stop(self) -> None:
        """Delete the Pod."""
        self._driver.doom(self.name)


class PodDriver:
    """Sandboxes as Pods. `owner` is the verifier's own Pod: name and uid; they end with it."""

    def __init__(self, api: KubernetesApi, template: Path, owner: tuple[str, str]) -> None:
        """Removes what an earlier verifier of this Pod left. Raises SandboxFailed, ValueError for a faulty template."""
        self._api = api
        self._template: Manifest = _read_template(template)
        self._owner_name, self._owner_uid = owner
        self._version = "unknown until a sandbox starts"
        self._trouble = ""
        self._guard = threading.Lock()
        self._wanted: set[str] = set()
        self._doomed: set[str] = set()
        self._running: set[str] = set()
        self._closing = threading.Event()
        try:
            self.tend()
        except (KubernetesUnavailable, KubernetesRefused) as error:
            raise SandboxFailed(f"sandbox Pods cannot be managed: {error}") from error
        self._tending = threading.Thread(target=self._tend_until_closed, name="sandbox-pods", daemon=True)
        self._tending.start()

    @property
    def isolation(self) -> str:
        """`pod`, and its runtime class."""
        runtime = self._template["spec"].get("runtimeClassName")
        return f"pod under {runtime}" if runtime else "pod"

    @property
    def postgres_version(self) -> str:
        """Of the newest sandbox."""
        return self._version

    def obstacle(self) -> str:
        """Why the API could not be asked last time."""
        return self._trouble

    def start(self, bundle: Bundle) -> PodCluster:
        """A Pod with the bundle's seeds. Raises BundleFaulty or SandboxFailed."""
        name = f"sandbox-{uuid.uuid4().hex[:12]}"
        password = secrets.token_urlsafe(24)
        with self._guard:
            self._wanted.add(name)  # first: what is listed and not wanted is an orphan
        try:
            self._create(self._manifest(name, password))
            address = Address(self._address(name), password)
            self._version = self._wait_for_postgres(name, address)
            load(address, bundle)
        except (KubernetesUnavailable, KubernetesRefused, psycopg.Error) as error:
            self.doom(name)
            raise SandboxFailed(f"sandbox Pod {name} did not start: {error}") from error
        except BaseException:
            self.doom(name)
            raise
        return PodCluster(self, name, address, database_names(bundle))

    def forget(self, bundle: Bundle) -> None:
        """Nothing is kept for a bundle."""

    def close(self) -> None:
        """Delete every Pod; what the API does not take now, Kubernetes removes with the verifier's own Pod."""
        self._closing.set()
        self._tending.join()
        with self._guard:
            self._doomed |= self._wanted
            self._running.clear()
        self._delete_doomed()
        self._api.close()

    def is_alive(self, name: str) -> bool:
        """Whether a Pod has answered, and was neither doomed nor seen dead since."""
        with self._guard:
            return name in self._running

    def doom(self, name: str) -> None:
        """Delete a Pod, now or as soon as the API answers. Idempotent; never raises."""
        with self._guard:
            self._wanted.discard(name)
            self._running.discard(name)
            self._doomed.add(name)
        self._delete_doomed()

    def tend(self) -> None:
        """Look once: dead Pods are noted, orphans and doomed ones deleted. Raises as the API's calls."""
        with self._guard:
            running = set(self._running)  # before the list: a Pod that starts meanwhile may be missing in it
        found = {pod["metadata"]["name"]: pod for pod in self._api.find(PODS, {VERIFIER_LABEL: self._owner_name})}
        ended = {name for name, pod in found.items() if _is_over(pod)} | (running - found.keys())
        with self._guard:
            self._running -= ended
            self._doomed |= found.keys() - self._wanted
        self._delete_doomed()

    def _tend_until_closed(self) -> None:
        while not self._closing.wait(POLL_SECONDS):
            try:
                self.tend()
                self._trouble = ""
            except (KubernetesUnavailable, KubernetesRefused) as error:
                self._trouble = str(error)
                log.warning("%s; running sandboxes go on", error)
            except Exception:  # the sweep must outlive whatever one answer holds
                log.exception("could not look at the sandbox Pods")

    def _delete_doomed(self) -> None:
        with self._guard:
            doomed = list(self._doomed)
        for name in doomed:
            try:
                self._api.delete(PODS, name, grace_seconds=0)
            except (KubernetesUnavailable, KubernetesRefused) as error:
                log.warning("sandbox Pod %s is not deleted yet: %s", name, error)
                return
            with self._guard:
                self._doomed.discard(name)

    def _manifest(self, name: str, password: str) -> Manifest:
        manifest = deepcopy(self._template)
        metadata = manifest["metadata"]
        metadata["name"] = name
        metadata["labels"][VERIFIER_LABEL] = self._owner_name
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": self._owner_name, "uid": self._owner_uid, "controller": True}
        ]
        roles = (Role.ADMIN, Role.CANDIDATE, Role.GOLD, OWNER)
        logins = json.dumps({str(role): scram_verifier(password, secrets.token_bytes(16)) for role in roles})
        container = manifest["spec"]["containers"][0]
        container["env"] = [*container.get("env", []), {"name": LOGINS_VARIABLE, "value": logins}]
        return manifest

    def _create(self, manifest: Manifest) -> None:
        """An API that is away for a while is waited for; one that took the Pod and lost its answer says so then."""
        for attempt in stamina.retry_context(KubernetesUnavailable, attempts=None, timeout=API_PATIENCE_SECONDS):
            with attempt:
                self._api.create(PODS, manifest)

    def _get(self, name: str) -> Manifest | None:
        for attempt in stamina.retry_context(KubernetesUnavailable, attempts=None, timeout=API_PATIENCE_SECONDS):
            with attempt:
                return self._api.get(PODS, name)
        raise AssertionError("unreachable: the context raises when it gives up")

    def _address(self, name: str) -> str:
        """The address of a Pod that has started. Raises SandboxFailed."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            pod = self._get(name)
            if pod is None:
                raise SandboxFailed(f"sandbox Pod {name} was deleted while it started")
            status = pod.get("status", {})
            if status.get("phase") == "Running" and status.get("podIP"):
                return str(status["podIP"])
            complaint, is_hopeless = _complaint(pod)
            if is_hopeless or time.monotonic() > deadline:
                raise SandboxFailed(f"sandbox Pod {name} does not start: {complaint or 'no reason is given'}")
            if self._closing.wait(START_POLL_SECONDS):
                raise SandboxFailed("the verifier ends")

    def _wait_for_postgres(self, name: str, address: Address) -> str:
        """Returns its version when it answers. Raises SandboxFailed."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                with address.connect(Role.ADMIN, "template1") as connection:
                    version = connection.info.server_version
                with self._guard:
                    self._running.add(name)
                return f"{version // 10_000}.{version % 10_000}"
            except psycopg.OperationalError as error:
                pod = self._get(name)
                if pod is None or _is_over(pod) or time.monotonic() > deadline:
                    raise SandboxFailed(f"Postgres in sandbox Pod {name} does not answer: {error}") from error
                if self._closing.wait(START_POLL_SECONDS):
                    raise SandboxFailed("the verifier ends") from error


def _read_template(path: Path) -> Manifest:
    try:
        template: Manifest = json.loads(path.read_text())
        template["spec"]["containers"][0]["image"]
        template["metadata"]["labels"]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"SQLCLIMB_POD_TEMPLATE={path} is no Pod as JSON ({type(error).__name__}: {error})") from error
    return template


def _is_over(pod: Manifest) -> bool:
    return pod.get("status", {}).get("phase") in OVER or "deletionTimestamp" in pod["metadata"]


def _complaint(pod: Manifest) -> tuple[str, bool]:
    """Why a Pod does not start, as far as it is known; whether waiting is hopeless."""
    status = pod.get("status", {})
    if _is_over(pod):
        return f"it ended ({status.get('reason', status.get('phase', 'deleted'))}: {status.get('message', '')})", True
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            words = f"{waiting['reason']}: {waiting.get('message', '')}"
            return words, waiting["reason"] in HOPELESS
    for condition in status.get("conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason')}: {condition.get('message', '')}", False
    return "", False
