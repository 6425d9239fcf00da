"""A real `python -m services.verifier` for a benchmark, and what it costs: CPU seconds and memory of its tree."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from shared.clients.verifier import VerifierClient
from tests.verifier.conftest import start_verifier, temporary_folder

__all__ = ["RunningVerifier", "cpu_seconds_below", "running_verifier", "temporary_folder"]


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
def running_verifier(folder: Path, **settings: str) -> Iterator[RunningVerifier]:
    """One with default settings, but for `settings` (SQLCLIMB_… variables without the prefix)."""
    started = start_verifier(folder, **settings)
    try:
        yield RunningVerifier(started.url, started.token(), started.process)
    finally:
        started.stop()
