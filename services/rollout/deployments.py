"""The Ray Serve app: one Coordinator (HTTP ingress, the only writer of the ledger) and RolloutWorkers that sample."""

import asyncio
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from services.rollout.app import build_app
from services.rollout.groups import Failed, FailureReason, GroupRequest, Landed
from services.rollout.settings import RolloutSettings, settings_in_replica
from services.rollout.worker import sample_group
from shared.auth import read_token
from shared.clients.inference import InferenceClient
from shared.clients.verifier import VerifierClient
from shared.telemetry import configure_logging

REPLICA_CPUS = 0.1
"""Replicas wait for other services nearly all the time; whole cores would starve the trainer's workers on one Ray."""

INGRESS_REQUESTS = 1000
"""Streams (batches, events, rows) stay open for minutes, so the ingress takes many requests at once."""

SHUTDOWN_SECONDS = 5.0
"""Groups in flight are not waited for: the ledger knows what is missing, and the next start asks it."""

QUEUED_PER_WORKER = 4
"""A worker takes this many times its target, so that groups wait at a worker while another one starts."""


class WorkersSampler:
    """Sends groups to the RolloutWorker replicas; a replica that dies is a failure of its groups, as data."""

    def __init__(self, workers: DeploymentHandle) -> None:
        self._workers = workers

    async def __call__(self, request: GroupRequest) -> Landed | Failed:
        response = self._workers.sample.remote(request)
        try:
            outcome: Landed | Failed = await response
            return outcome
        except (RayError, RayServeException) as error:
            return Failed(FailureReason.WORKER_DIED, type(error).__name__)
        except asyncio.CancelledError:
            response.cancel()
            raise


class RolloutWorker:
    """Samples and verifies one group a call, many calls at once."""

    def __init__(self, public_settings: dict[str, object]) -> None:
        settings = settings_in_replica(public_settings)
        configure_logging("rollout-worker", settings.log_level)
        token = read_token(settings.tokens_file, settings.token_name)
        self._inference = InferenceClient(settings.inference_url, token)
        self._verifier = VerifierClient(settings.verifier_url, token)
        self._patience_seconds = settings.verify_patience_seconds

    async def sample(self, request: GroupRequest) -> Landed | Failed:
        """One group. Never raises for an infrastructure failure."""
        return await sample_group(request, self._inference, self._verifier, self._patience_seconds)


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
        "graceful_shutdown_timeout_s": SHUTDOWN_SECONDS,
    }
    worker = serve.deployment(
        name="RolloutWorker",
        max_ongoing_requests=settings.groups_per_worker * QUEUED_PER_WORKER,
        autoscaling_config={
            "min_replicas": settings.workers_min,
            "max_replicas": settings.workers_max,
            "target_ongoing_requests": settings.groups_per_worker,
        },
        **common,
    )(RolloutWorker)
    coordinator = serve.deployment(
        name="Coordinator",
        num_replicas=1,
        max_ongoing_requests=INGRESS_REQUESTS,
        **common,
    )(serve.ingress()(Coordinator))
    return coordinator.bind(settings.public(), worker.bind(settings.public()))
