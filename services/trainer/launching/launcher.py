"""Starts, watches and stops the job of a run's attempt. Behind one protocol: Ray jobs now, other ways later."""

import asyncio
import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, TypeVar

import stamina
from ray.job_submission import JobStatus, JobSubmissionClient

from services.trainer.settings import JobSettings
from shared.telemetry import redact

Result = TypeVar("Result")

LOG_TAIL_CHARACTERS = 1_500

SUBMIT_SECONDS = 60.0
"""A Ray that has just started answers for a while that it has no agent to run jobs."""

STOP_POLLS = 60
STOP_POLL_SECONDS = 0.5
"""Ray gives a job 3 s to end by itself before it kills it."""


class LauncherUnavailable(Exception):
    """What runs the jobs cannot be reached; nothing is known of any job."""


class JobState(StrEnum):
    """What became of an attempt's job."""

    ALIVE = "alive"  # accepted; runs or will run
    ENDED = "ended"
    FAILED = "failed"
    STOPPED = "stopped"  # by somebody, or by a limit on its time
    MISSING = "missing"  # nobody knows of such a job


class Launcher(Protocol):
    """Runs attempts. Every call raises LauncherUnavailable."""

    async def submit(self, run_id: str, attempt: int) -> None:
        """Start an attempt's job."""
        ...

    async def state(self, run_id: str, attempt: int) -> JobState:
        """What became of it."""
        ...

    async def log_tail(self, run_id: str, attempt: int) -> str:
        """The end of its log, without secrets; empty when there is none."""
        ...

    async def stop(self, run_id: str, attempt: int) -> None:
        """End it now and wait until it has; no error when it is not running."""
        ...

    async def version(self) -> str:
        """What runs the jobs."""
        ...


_STATES = {
    JobStatus.PENDING: JobState.ALIVE,
    JobStatus.RUNNING: JobState.ALIVE,
    JobStatus.SUCCEEDED: JobState.ENDED,
    JobStatus.FAILED: JobState.FAILED,
    JobStatus.STOPPED: JobState.STOPPED,
}


class RayJobLauncher:
    """Launcher over a Ray cluster's job API. The job's settings travel in a private file beside its checkpoints."""

    def __init__(self, dashboard_url: str, settings: JobSettings) -> None:
        self._dashboard_url = dashboard_url
        self._settings = settings
        self._client: JobSubmissionClient | None = None

    async def submit(self, run_id: str, attempt: int) -> None:
        settings_file = self._settings.checkpoints / run_id / "job.json"
        command = [sys.executable, "-m", "services.trainer.job", "--run-id", run_id, "--attempt", str(attempt)]
        command += ["--settings", str(settings_file)]

        def work(client: JobSubmissionClient) -> None:
            if _job_id(run_id, attempt) in {job.submission_id for job in client.list_jobs()}:
                return  # an earlier try got through
            self._settings.write(settings_file)
            client.submit_job(
                entrypoint=shlex.join(command),
                submission_id=_job_id(run_id, attempt),
                metadata={"run_id": run_id, "attempt": str(attempt)},
            )

        async for retry in stamina.retry_context(LauncherUnavailable, attempts=None, timeout=SUBMIT_SECONDS):
            with retry:
                await self._call(work)

    async def state(self, run_id: str, attempt: int) -> JobState:
        def work(client: JobSubmissionClient) -> JobState:
            known = {job.submission_id: job.status for job in client.list_jobs()}
            status = known.get(_job_id(run_id, attempt))
            return JobState.MISSING if status is None else _STATES[status]

        return await self._call(work)

    async def log_tail(self, run_id: str, attempt: int) -> str:
        def work(client: JobSubmissionClient) -> str:
            try:
                return redact(client.get_job_logs(_job_id(run_id, attempt))[-LOG_TAIL_CHARACTERS:]).strip()
            except RuntimeError:  # the job is gone, and its log with it
                return ""

        return await self._call(work)

    async def stop(self, run_id: str, attempt: int) -> None:
        for _ in range(STOP_POLLS):
            if await self.state(run_id, attempt) is not JobState.ALIVE:
                return
            await self._call(lambda client: client.stop_job(_job_id(run_id, attempt)))
            await asyncio.sleep(STOP_POLL_SECONDS)
        raise LauncherUnavailable(f"Ray does not end job {_job_id(run_id, attempt)}")

    async def version(self) -> str:
        return await self._call(lambda client: str(client.get_version()))

    async def _call(self, work: Callable[[JobSubmissionClient], Result]) -> Result:
        def run() -> Result:
            try:
                if self._client is None:
                    self._client = JobSubmissionClient(self._dashboard_url)
                return work(self._client)
            except (ConnectionError, OSError, RuntimeError) as error:
                self._client = None
                raise LauncherUnavailable(
                    f"Ray's job API at {self._dashboard_url} gave no usable answer ({redact(str(error))[:300]})"
                ) from error

        return await asyncio.to_thread(run)


def _job_id(run_id: str, attempt: int) -> str:
    return f"{run_id}-attempt-{attempt}"
