"""A real `python -m services.verifier` for a benchmark, and what it costs: CPU seconds and memory of its tree."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from shared.auth import Scope, read_token, write_tokens
from shared.clients.verifier import VerifierClient

START_SECONDS = 60


@dataclass(frozen=True)
class RunningVerifier:
    """One verifier process and what it started."""

    url: str
    token: str
    process: subprocess.Popen[bytes]

    def client(self) -> VerifierClient:
        """As the rollout workers have one."""
        return VerifierClient(self.url, self.token)

    def cpu_seconds(self) -> tuple[float, float]:
        """(of the service process itself, of everything it started)."""
        service = psutil.Process(self.process.pid)
        own = service.cpu_times()
        return own.user + own.system, cpu_seconds_below(service)

    def resident_mb(self) -> tuple[float, float]:
        """(of the service process itself, of everything it started): proportional set size in MB."""
        service = psutil.Process(self.process.pid)
        below = 0.0
        for child in service.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                below += child.memory_full_info().pss / 1e6
        return service.memory_full_info().pss / 1e6, below


def cpu_seconds_below(process: psutil.Process) -> float:
    """CPU seconds of all that a process started, and of what that has waited for."""
    seconds = 0.0
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """In memory: both sides' clusters lie there."""
    with tempfile.TemporaryDirectory(prefix="sqlclimb-", dir="/dev/shm") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextlib.contextmanager
def running_verifier(folder: Path, **settings: str) -> Iterator[RunningVerifier]:
    """One with default settings, but for `settings` (SQLCLIMB_… variables without the prefix)."""
    tokens_file = folder / "tokens.json"
    write_tokens(tokens_file, {"service": [Scope.GOLD]})
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environment = {
        **os.environ,
        "SQLCLIMB_PORT": str(port),
        "SQLCLIMB_TOKENS_FILE": str(tokens_file),
        "SQLCLIMB_SANDBOXES": str(folder / "sandboxes"),
        **{f"SQLCLIMB_{name.upper()}": value for name, value in settings.items()},
    }
    log_file = folder / "log"
    with log_file.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "services.verifier"], env=environment, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the verifier did not start: {log_file.read_text()[-2000:]}")
            time.sleep(0.05)
        yield RunningVerifier(url, read_token(tokens_file, "service"), process)
    finally:
        process.terminate()
        process.wait(30)
