"""`python -m services.rollout`: puts the rollout app onto the running Ray, serves until SIGTERM, takes it off again."""

import logging
import signal
import sys
import threading

import ray
from ray import serve

from services.rollout.deployments import serve_app
from services.rollout.settings import RolloutSettings
from shared.auth import TokenFile
from shared.settings import load
from shared.telemetry import configure_logging

log = logging.getLogger("services.rollout")

APP = "rollout"


def end_on_signals(stop: threading.Event) -> None:
    """SIGTERM and Ctrl-C end the wait, so that the app is taken off Ray."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


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
    serve.shutdown()  # what a killed predecessor left: its settings and port may be old; its samplings resume
    serve.start(
        proxy_location="HeadOnly",
        http_options={"host": settings.host, "port": settings.port},
        logging_config={"log_level": "WARNING", "enable_access_log": False},
    )
    try:
        serve.run(serve_app(settings), name=APP, route_prefix="/")
        log.info("rollout serves on http://%s:%d with Ray %s", settings.host, settings.port, ray.__version__)
        stop.wait()
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
