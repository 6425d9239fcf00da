"""`python -m services.rollout`: puts the rollout app onto the running Ray, serves until SIGTERM, takes it off again."""

import contextlib
import logging
import os
import signal
import sys
import threading
from typing import Any

import httpx
import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from services.rollout.deployments import WORKERS, serve_app
from services.rollout.settings import RolloutSettings
from shared.auth import TokenFile
from shared.settings import load
from shared.telemetry import configure_logging

log = logging.getLogger("services.rollout")

APP = "rollout"

LOOK_SECONDS = 2.0
"""Between looks at the proxy that Ray runs for us."""

LOST_AFTER_LOOKS = 5
"""Looks in a row without an answer after which Ray is gone."""


ABANDON_SECONDS = 5.0
"""Longest wait for the workers to give up their groups."""


def end_on_signals(stop: threading.Event) -> None:
    """SIGTERM and Ctrl-C end the wait, so that the app is taken off Ray."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def wait(stop: threading.Event, proxy_health: str) -> None:
    """Return on `stop`. Without Ray the process ends at once, so that its supervisor starts it on the next one."""
    unanswered = 0
    while not stop.wait(LOOK_SECONDS):
        try:
            httpx.get(proxy_health, timeout=LOOK_SECONDS)
            unanswered = 0
        except httpx.TimeoutException:
            continue  # busy
        except httpx.TransportError as error:
            unanswered += 1
            if unanswered == LOST_AFTER_LOOKS:
                log.error("Ray's proxy is gone (%s): ending, to be started again", type(error).__name__)
                os._exit(1)  # Ray's own ways out wait for it


def take_off() -> None:
    """Take the app off Ray. Workers give up their groups: they would be waited for, and the ledger knows them."""
    with contextlib.suppress(RayServeException, RayError, TimeoutError):
        workers: DeploymentHandle[Any] = serve.get_deployment_handle(WORKERS, app_name=APP)
        workers.broadcast("abandon").results(timeout_s=ABANDON_SECONDS)
    serve.shutdown()


def main() -> None:
    """Deploy, wait, remove."""
    settings = load(RolloutSettings)
    configure_logging("rollout", settings.log_level)
    stop = threading.Event()
    end_on_signals(stop)
    try:
        TokenFile(settings.tokens_file)
        ray.init(address=settings.ray_address, namespace=APP, logging_level=settings.log_level)
    except (ValueError, ConnectionError) as error:
        print(f"rollout: {error}; start Ray first: `ray start --head`, or `sqlclimb up`", file=sys.stderr)
        raise SystemExit(2) from error
    end_on_signals(stop)  # again: `ray.init` puts its own handlers in place
    take_off()  # what a killed predecessor left: its settings and port may be old; its samplings resume
    serve.start(
        proxy_location="HeadOnly",
        http_options={"host": settings.host, "port": settings.port},
        logging_config={"log_level": "WARNING", "enable_access_log": False},
    )
    try:
        serve.run(serve_app(settings), name=APP, route_prefix="/")
        log.info("rollout serves on http://%s:%d with Ray %s", settings.host, settings.port, ray.__version__)
        wait(stop, f"http://{settings.host}:{settings.port}/-/healthz")
    finally:
        take_off()
        ray.shutdown()


if __name__ == "__main__":
    main()
