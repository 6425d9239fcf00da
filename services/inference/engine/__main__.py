"""`python -m services.inference.engine`: the vLLM API server, kept running. In a cluster, a container of its own."""

import logging
import os
import sys

from services.inference.engine.command import OPENMP, TCMALLOC, engine_command, find_device, find_preload
from services.inference.engine.process import EngineProcess, run_until_signalled
from services.inference.settings import Device, EngineSettings
from shared.settings import load
from shared.telemetry import configure_logging

log = logging.getLogger("services.inference.engine")

STOP_MARGIN_SECONDS = 3
"""What vLLM takes to end after its last request; later it is killed."""


def main() -> None:
    """Load settings and run vLLM until SIGTERM. Exits 2 with a sentence for a faulty setting."""
    settings = load(EngineSettings)
    configure_logging("engine", settings.log_level)
    device = settings.device or find_device()
    preload = find_preload()
    if device is Device.CPU and preload.tcmalloc is None:
        log.warning("%s not found: the engine runs slower; `apt-get install libtcmalloc-minimal4`", TCMALLOC)
    if device is Device.CPU and preload.openmp is None:
        log.warning("%s not found in %s: the engine runs slower", OPENMP, sys.prefix)
    command = engine_command(settings, device, preload, os.environ)
    log.info("starting %s", " ".join(command.argv[1:]))
    stop_seconds = settings.drain_seconds + STOP_MARGIN_SECONDS
    run_until_signalled(
        lambda: EngineProcess(command, settings.host, settings.port, settings.start_seconds, stop_seconds)
    )


if __name__ == "__main__":
    main()
