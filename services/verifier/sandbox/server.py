"""One Postgres server process on a data folder: start, wait until it answers, stop. Blocking."""

import contextlib
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg

from services.verifier.sandbox.isolation import Isolation
from services.verifier.sandbox.leftovers import end_processes, remove_segments
from services.verifier.sandbox.protocol import Role, SandboxFailed
from shared.embedded_postgres import program

START_SECONDS = 20.0
"""A server that does not answer by then has failed; a warm one needs 0.1 s."""

STOP_SECONDS = 10.0
"""Grace for a clean shutdown (templates only; sandboxes are killed)."""

SOCKET = ".s.PGSQL.5432"
"""Appears when the server begins to listen."""

_POLL_SECONDS = 0.002

_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-spawner")
"""Starts every server. "Die with parent" means the parent *thread*, so it must be one that lives as long as we do."""


class Server:
    """A server on `folder/data`, its socket in `folder/s`, its log in `folder/log`."""

    def __init__(self, folder: Path, isolation: Isolation, database: str) -> None:
        """`database` is one that it holds."""
        self.folder = folder
        self._database = database
        self._isolation = isolation
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        """The socket folder."""
        return str(self.folder / "s")

    def start(self) -> None:
        """Returns when it answers queries. Raises SandboxFailed."""
        inner = self._isolation.inner(self.folder)
        postgres = [str(program("postgres")), "-D", str(inner / "data"), "-k", str(inner / "s")]
        argv = self._isolation.command(postgres, self.folder)
        self._process = _spawner.submit(self._spawn, argv).result()
        (self.folder / "pid").write_text(str(self._process.pid))
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if not (self.folder / "s" / SOCKET).exists():
                    raise psycopg.OperationalError("it has no socket yet")
                psycopg.connect(host=self.host, user=Role.ADMIN, dbname=self._database, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    reason = self._log_tail() or str(error)
                    self.kill()
                    raise SandboxFailed(f"Postgres did not start: {reason}") from error
                time.sleep(_POLL_SECONDS)

    def _spawn(self, argv: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as sink:
            return subprocess.Popen(
                argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )

    def _postmaster(self) -> psutil.Process:
        """bwrap itself stays outside as the parent; Postgres is its child. Raises SandboxFailed."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # a child that has ended since
                if process.name() == "postgres":
                    return process
        raise SandboxFailed("the server is gone")

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / "log").read_text(errors="replace").strip()[-300:]
        return ""

    def alive(self) -> bool:
        """Whether the process we started still runs."""
        return self._process is not None and self._process.poll() is None

    def shut_down(self) -> None:
        """A clean shutdown, so that the data folder may be copied. Raises SandboxFailed."""
        if self._process is None:
            raise SandboxFailed("the server was not started")
        self._postmaster().send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise SandboxFailed("Postgres did not shut down in time") from error

    def kill(self) -> None:
        """End it and all it started, at once. Idempotent; never raises."""
        if self._process is None:
            return
        end_processes(self.folder, *self.processes())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        remove_segments(self.folder)

    def remove(self) -> None:
        """Kill it and delete its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """Those it consists of now; none once the first is dead, whose id may be another's by then."""
        with contextlib.suppress(psutil.Error):
            if self._process is not None and self.alive():
                process = psutil.Process(self._process.pid)
                return [process, *process.children(recursive=True)]
        return []
