"""Attempts as RayJobs of a Kubernetes cluster, by KubeRay: each has a Ray cluster of its own, which ends with it.

An attempt's RayJob has a name that follows from run and attempt, so a submit that is sent twice starts one job. KubeRay
never starts it again (`backoffLimit: 0`): only the trainer may begin an attempt, because a new one must fence the old.
"""

import asyncio
import json
import re
import shlex
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import TypeVar

import stamina

from services.trainer.launching.launcher import (
    LOG_TAIL_CHARACTERS,
    STOP_POLL_SECONDS,
    SUBMIT_SECONDS,
    JobState,
    LauncherUnavailable,
)
from shared.ids import sha256_hex
from shared.kubernetes import KubernetesApi, KubernetesRefused, KubernetesUnavailable, Manifest
from shared.telemetry import redact

Result = TypeVar("Result")

RAYJOBS = "apis/ray.io/v1/rayjobs"
PODS = "api/v1/pods"

RUN_LABEL = "sqlclimb.io/run"
ATTEMPT_LABEL = "sqlclimb.io/attempt"
RUN_ANNOTATION = "sqlclimb.io/run-id"

STOP_SECONDS = 120.0
"""Pods have a grace period, and a lost node's Pods stay until it is given up."""

_JOB_STATES = {"SUCCEEDED": JobState.ENDED, "FAILED": JobState.FAILED, "STOPPED": JobState.STOPPED}
_DEPLOYMENT_STATES = {
    "Complete": JobState.ENDED,
    "Failed": JobState.FAILED,  # also: its head was lost
    "ValidationFailed": JobState.FAILED,
}


def job_name(run_id: str, attempt: int) -> str:
    """A DNS label that no other attempt has: readable where the run's id allows it. At most 45 characters."""
    slug = re.sub(r"[^a-z0-9]+", "-", run_id.lower()).strip("-")[:20].strip("-")
    return f"run-{slug}-{_run_key(run_id)}-a{attempt}" if slug else f"run-{_run_key(run_id)}-a{attempt}"


def job_state(rayjob: Manifest | None) -> JobState:
    """What a RayJob says of itself. One that waits for Kueue, was preempted or is being deleted is alive."""
    if rayjob is None:
        return JobState.MISSING
    status = rayjob.get("status", {})
    if "deletionTimestamp" in rayjob["metadata"]:
        return JobState.ALIVE
    if status.get("reason") == "DeadlineExceeded":
        return JobState.STOPPED
    job = _JOB_STATES.get(status.get("jobStatus", ""))
    return job or _DEPLOYMENT_STATES.get(status.get("jobDeploymentStatus", ""), JobState.ALIVE)


class KubernetesLauncher:
    """Launcher that creates RayJobs from the chart's template."""

    def __init__(self, api: KubernetesApi, template: Path) -> None:
        """Raises ValueError for a template that is no RayJob."""
        self._api = api
        try:
            self._template: Manifest = json.loads(template.read_text())
            _pod_templates(self._template)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"SQLCLIMB_RAYJOB_TEMPLATE={template} is no RayJob as JSON: {error}") from error

    async def submit(self, run_id: str, attempt: int) -> None:
        """Create the attempt's RayJob; RayJobs of earlier attempts, which have ended, are removed."""
        manifest = self._manifest(run_id, attempt)

        def work() -> None:
            for older in self._api.find(RAYJOBS, {RUN_LABEL: _run_key(run_id)}):
                if int(older["metadata"]["labels"][ATTEMPT_LABEL]) < attempt:
                    self._api.delete(RAYJOBS, older["metadata"]["name"])
            self._api.create(RAYJOBS, manifest)  # one that exists: an earlier try got through

        async for retry in stamina.retry_context(_may_pass, attempts=None, timeout=SUBMIT_SECONDS):
            with retry:
                await self._call(work)

    async def state(self, run_id: str, attempt: int) -> JobState:
        """As the RayJob says."""
        return job_state(await self._find(run_id, attempt))

    async def log_tail(self, run_id: str, attempt: int) -> str:
        """KubeRay keeps the end of a failed job's log as its message."""
        status = (await self._find(run_id, attempt) or {}).get("status", {})
        words = " ".join(filter(None, (status.get("reason"), status.get("message"))))
        return redact(words[-LOG_TAIL_CHARACTERS:]).strip()

    async def stop(self, run_id: str, attempt: int) -> None:
        """Delete the RayJob and wait until neither it nor any Pod of it is left."""
        name = job_name(run_id, attempt)
        labels = {RUN_LABEL: _run_key(run_id), ATTEMPT_LABEL: str(attempt)}

        def is_gone() -> bool:
            if self._api.get(RAYJOBS, name) is not None:
                self._api.delete(RAYJOBS, name)
                return False
            return not self._api.find(PODS, labels)

        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        while not await self._call(is_gone):
            if asyncio.get_running_loop().time() > deadline:
                raise LauncherUnavailable(f"Kubernetes does not end RayJob {name}")
            await asyncio.sleep(STOP_POLL_SECONDS)

    async def version(self) -> str:
        """Of the cluster."""
        return f"kubernetes {await self._call(self._api.version)}"

    async def _find(self, run_id: str, attempt: int) -> Manifest | None:
        return await self._call(lambda: self._api.get(RAYJOBS, job_name(run_id, attempt)))

    async def _call(self, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.to_thread(work)
        except (KubernetesUnavailable, KubernetesRefused) as error:
            raise LauncherUnavailable(redact(str(error))) from error

    def _manifest(self, run_id: str, attempt: int) -> Manifest:
        manifest = deepcopy(self._template)
        labels = {RUN_LABEL: _run_key(run_id), ATTEMPT_LABEL: str(attempt)}
        metadata = manifest["metadata"]
        metadata["name"] = job_name(run_id, attempt)
        metadata.setdefault("annotations", {})[RUN_ANNOTATION] = run_id
        for labelled in (metadata, *(pod["metadata"] for pod in _pod_templates(manifest))):
            labelled.setdefault("labels", {}).update(labels)
        command = ["python", "-m", "services.trainer.job", "--run-id", run_id, "--attempt", str(attempt)]
        manifest["spec"]["entrypoint"] = shlex.join(command)
        return manifest


def _may_pass(error: Exception) -> bool:
    """What the API refuses once it refuses again."""
    return isinstance(error, LauncherUnavailable) and not isinstance(error.__cause__, KubernetesRefused)


def _run_key(run_id: str) -> str:
    """A label's value: a run's id may be too long for one, or hold what none may."""
    return sha256_hex(run_id)[:12]


def _pod_templates(manifest: Manifest) -> list[Manifest]:
    cluster = manifest["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]
