"""The Ray Serve app: one Coordinator (HTTP ingress, the only writer of the ledger) and RolloutWorkers that sample."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from services.rollout.app import build_app
from services.rollout.settings import RolloutSettings, settings_in_replica
from services.rollout.worker.group_sampler import GroupSampler
from services.rollout.worker.groups import Failed, FailureReason, GroupRequest, Landed
from shared.auth import OwnToken
from shared.clients.inference import InferenceClient
from shared.clients.verifier import VerifierClient
from shared.telemetry import configure_logging

WORKERS = "RolloutWorker"
"""Name of the workers' deployment."""

REPLICA_CPUS = 0.1
"""Replicas wait for other services nearly all the time; whole cores would starve the trainer's workers on one Ray."""

INGRESS_REQUESTS = 1000
"""Streams (batches, events, rows) stay open for minutes, so the ingress takes many requests at once."""

SHUTDOWN_SECONDS = 5.0
"""The coordinator's streams are not waited for: the ledger knows what is missing, and the next start asks it."""

DRAIN_SECONDS = 600.0
"""A worker that scaling takes away ends its groups first: an engine's usual budget and the wait for a verifier."""

SCALING = {"upscale_delay_s": 5.0, "look_back_period_s": 15.0}
"""Workers start as fast as they are needed: one costs a process and no accelerator."""

CUT_SECONDS = 5.0
"""Longest wait for the workers to say that they heard a cut."""

QUEUED_PER_WORKER = 4
"""A worker takes this many times its target, so that groups wait at a worker while another one starts."""


ABANDONED = Failed(FailureReason.WORKER_DIED, "the service was taken off Ray")


class WorkersSampler:
    """Sends groups to the RolloutWorker replicas; a replica that dies is a failure of its groups, as data."""

    def __init__(self, workers: DeploymentHandle) -> None:
        self._workers = workers
        self._sample = workers.options(method_name="sample", stream=True)

    async def sample(self, request: GroupRequest) -> AsyncGenerator[Landed | Failed, None]:
        """See `Sampler`."""
        outcomes = self._sample.remote(request)
        try:
            async for outcome in outcomes:
                yield outcome
        except (RayError, RayServeException) as error:
            yield Failed(FailureReason.WORKER_DIED, type(error).__name__)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # Serve's word for a call that ended with its worker
                yield Failed(FailureReason.WORKER_DIED, "the worker's call was cancelled")
                return
            outcomes.cancel()
            raise
        except GeneratorExit:
            outcomes.cancel()
            raise

    async def cut(self, sampling_id: str) -> None:
        """See `Sampler`. A replica that is being drained does not hear it: its groups end by their budget."""
        with contextlib.suppress(RayError, RayServeException, TimeoutError):
            await self._workers.broadcast("cut", sampling_id).results_async(
                timeout_s=CUT_SECONDS, return_exceptions=True
            )


class RolloutWorker:
    """Samples and verifies one group a call, many calls at once."""

    def __init__(self, public_settings: dict[str, object]) -> None:
        settings = settings_in_replica(public_settings)
        configure_logging("rollout-worker", settings.log_level)
        token = OwnToken(settings.tokens_file, settings.token_name)
        self._running: set[asyncio.Task[None]] = set()
        self._leaving = False
        self._groups = GroupSampler(
            InferenceClient(settings.inference_url, token),
            VerifierClient(settings.verifier_url, token),
            settings.verify_patience_seconds,
            settings.egress,
        )

    async def sample(self, request: GroupRequest) -> AsyncGenerator[Landed | Failed, None]:
        """One group. Never raises for an infrastructure failure."""
        if self._leaving:
            yield ABANDONED
            return
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
        try:
            async with contextlib.aclosing(self._groups.sample(request)) as outcomes:
                async for outcome in outcomes:
                    yield outcome
        except asyncio.CancelledError:
            if not self._leaving:
                raise
            yield ABANDONED
        finally:
            self._running.discard(task)

    async def cut(self, sampling_id: str) -> None:
        """Have the sampling's groups here end with what they have."""
        self._groups.cut(sampling_id)

    async def abandon(self) -> None:
        """Give up every group in flight and take no other: the service is taken off Ray, and nobody waits for them."""
        self._leaving = True
        for task in self._running:
            task.cancel()


class Coordinator:
    """The HTTP ingress. Ray Serve runs the app that `__serve_build_asgi_app__` makes, its lifespan included."""

    def __init__(self, public_settings: dict[str, object], workers: DeploymentHandle) -> None:
        self._settings = settings_in_replica(public_settings)
        configure_logging("rollout", self._settings.log_level)
        self._workers = workers

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_app(self._settings, WorkersSampler(self._workers))


def serve_app(settings: RolloutSettings) -> Any:
    """The application to give to `serve.run`."""
    common: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": REPLICA_CPUS},
        "logging_config": {"enable_access_log": False, "log_level": "WARNING"},
        "graceful_shutdown_wait_loop_s": 0.5,
    }
    worker = serve.deployment(
        name=WORKERS,
        max_ongoing_requests=settings.groups_per_worker * QUEUED_PER_WORKER,
        autoscaling_config={
            "min_replicas": settings.workers_min,
            "max_replicas": settings.workers_max,
            "target_ongoing_requests": settings.groups_per_worker,
            "downscale_delay_s": settings.workers_idle_seconds,
            **SCALING,
        },
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        **common,
    )(RolloutWorker)
    coordinator = serve.deployment(
        name="Coordinator",
        num_replicas=1,
        max_ongoing_requests=INGRESS_REQUESTS,
        graceful_shutdown_timeout_s=SHUTDOWN_SECONDS,
        **common,
    )(serve.ingress()(Coordinator))
    return coordinator.bind(settings.public(), worker.bind(settings.public()))
