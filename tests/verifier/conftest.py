"""A real verifier process on a free port, with a tokens file of its own; one for all tests of this folder."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from shared.auth import Scope, read_token, write_tokens
from shared.clients.verifier import VerifierClient

START_SECONDS = 60


@dataclass(frozen=True)
class VerifierProcess:
    """A running `python -m services.verifier`."""

    url: str
    tokens_file: Path
    folder: Path
    process: subprocess.Popen[bytes]
    log_file: Path

    def token(self, name: str = "service") -> str:
        return read_token(self.tokens_file, name)

    def client(self) -> VerifierClient:
        return VerifierClient(self.url, self.token())

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def start_verifier(folder: Path, **settings: str) -> VerifierProcess:
    """Start one and wait until it is ready; `settings` become SQLCLIMB_… variables."""
    tokens_file = folder / "tokens.json"
    if not tokens_file.exists():
        write_tokens(tokens_file, {"service": [Scope.GOLD], "sampler": [Scope.SAMPLE]})
    port = settings.get("port") or free_port()
    environment = {
        **os.environ,
        "SQLCLIMB_PORT": str(port),
        "SQLCLIMB_TOKENS_FILE": str(tokens_file),
        "SQLCLIMB_SANDBOXES": str(folder / "sandboxes"),
        **{f"SQLCLIMB_{name.upper()}": value for name, value in settings.items()},
    }
    log_file = folder / "log"
    with log_file.open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "services.verifier"], env=environment, stderr=log)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return VerifierProcess(url, tokens_file, folder, process, log_file)
        except httpx.TransportError:
            time.sleep(0.05)
    process.kill()
    process.wait()
    raise RuntimeError(f"the verifier did not start: {log_file.read_text()[-2000:]}")


TMPFS = Path("/dev/shm")
TMPFS_BYTES = 2 * 1024**3
"""Free memory file system that the tests want; a container's default of 64 MB will not do."""


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A short path (sockets), open to user `nobody`, in memory where there is room: sandboxes are copied a lot."""
    roomy = TMPFS.is_dir() and shutil.disk_usage(TMPFS).free > TMPFS_BYTES
    with tempfile.TemporaryDirectory(prefix="sqlclimb-", dir=TMPFS if roomy else None) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="session")
def verifier() -> Iterator[VerifierProcess]:
    with temporary_folder() as folder:
        running = start_verifier(folder)
        yield running
        running.stop()


@pytest.fixture
async def client(verifier: VerifierProcess) -> AsyncIterator[VerifierClient]:
    async with verifier.client() as opened:
        yield opened


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder
