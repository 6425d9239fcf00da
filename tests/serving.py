"""An app of a test's own on a port of this machine, as a real server in a thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from cli.stack.home import free_ports

START_SECONDS = 10.0


@contextmanager
def served(app: FastAPI, port: int | None = None) -> Iterator[str]:
    """Its address, from when it answers until the block ends; on a free port unless one is given."""
    port = port or free_ports(1)[0]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + START_SECONDS
    try:
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
