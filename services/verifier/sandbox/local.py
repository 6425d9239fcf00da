"""The local driver: each sandbox is a Postgres process on a copy of its bundle's template.

What bounds a sandbox: each process has `memory_bytes` of address space (a statement that wants more fails, alone); each
session has the template's `temp_file_limit`; memory and new files of a whole sandbox together stay below `total_bytes`,
and its processes below MOST_PROCESSES, else it is killed and rebuilt (`overuse`, asked twice a second while statements
run). No more statements run at once than the verifier has workers, so all sandboxes together are bounded too: workers
times the first two. Short of memory, the kernel ends a sandbox's process before any other.
"""

import contextlib
import fcntl
import logging
import re
import shutil
import subprocess
import threading
import uuid
from pathlib import Path

import psutil
import psycopg

from services.verifier.sandbox.isolation import Isolation, choose_isolation
from services.verifier.sandbox.leftovers import end_processes, remove_segments
from services.verifier.sandbox.loading import database_names
from services.verifier.sandbox.protocol import MAIN_SEED, SandboxFailed
from services.verifier.sandbox.server import Server
from services.verifier.sandbox.template import Template, Templates, copy_cluster, folder_bytes
from shared.domain import Bundle
from shared.embedded_postgres import program

log = logging.getLogger(__name__)

TOTAL_BYTES = 1024**3
"""Default of what one sandbox may occupy beyond its copy of the template."""

FREE_BYTES = 256 * 1024**2
"""Below this no more sandboxes should be asked for: room for about ten with three seeds each."""

MOST_PROCESSES = 100
"""Of one sandbox: 60 connections, Postgres' own few, bwrap."""


class LocalCluster:
    """A running copy of a template."""

    def __init__(
        self, server: Server, databases: dict[str, str], templates: Templates, template: Template, total_bytes: int
    ) -> None:
        self._server = server
        self._databases = databases
        self._templates = templates
        self._template = template
        self._total_bytes = total_bytes
        self._stopped = False
        self._stopping = threading.Lock()

    @property
    def host(self) -> str:
        """The socket folder."""
        return self._server.host

    @property
    def password(self) -> None:
        """None: the socket's folder keeps others out."""

    @property
    def data_id(self) -> str:
        """The template's id."""
        return self._template.data_id

    def database(self, seed: str) -> str:
        """The database that holds a seed."""
        return self._databases[seed]

    def alive(self) -> bool:
        """Whether its process runs."""
        return self._server.alive()

    def overuse(self) -> str:
        """Processes, and private memory plus what its files grew by; about 10 ms."""
        processes = self._server.processes()
        if len(processes) > MOST_PROCESSES:
            return f"{len(processes)} processes, {MOST_PROCESSES} are allowed"
        memory = 0
        for process in processes:
            with contextlib.suppress(psutil.Error):
                used = process.memory_info()
                memory += used.rss - used.shared
        grown = max(0, folder_bytes(self._server.folder / "data") - self._template.bytes)
        if memory + grown > self._total_bytes:
            amounts = f"{memory // 1024**2} MB of memory and {grown // 1024**2} MB of new files"
            return f"{amounts}, {self._total_bytes // 1024**2} MB are allowed"
        return ""

    def stop(self) -> None:
        """Kill it and remove its folder."""
        with self._stopping:
            self._server.remove()
            if not self._stopped:
                self._templates.release(self._template)
            self._stopped = True


class LocalDriver:
    """Clusters below one folder, which belongs to one verifier at a time (a lock says so)."""

    def __init__(self, folder: Path, memory_bytes: int, isolation: str | None, total_bytes: int = TOTAL_BYTES) -> None:
        """Removes what a killed verifier left. Raises SandboxFailed when the folder is in use, PostgresUnavailable."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        self._lock_file = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock_file.close()
            raise SandboxFailed(f"{folder} is in use by another verifier: give this one another folder") from error
        self._folder = folder
        self._clusters_folder = folder / "clusters"
        self._total_bytes = total_bytes
        self._clusters: set[LocalCluster] = set()
        self._guard = threading.Lock()
        try:
            self._sweep()
            self._clusters_folder.mkdir(exist_ok=True)
            self._version = _server_version()
            self._isolation = choose_isolation(folder, memory_bytes, isolation, self._trial)
        except BaseException:
            self._lock_file.close()
            raise
        self._templates = self._templates_under(self._isolation)

    @property
    def isolation(self) -> str:
        """`bubblewrap` or `process`, and ` without seccomp` where that does not work."""
        return self._isolation.name

    @property
    def postgres_version(self) -> str:
        """E.g. `18.6`."""
        return self._version

    def obstacle(self) -> str:
        """Too little room for copies of templates."""
        free = shutil.disk_usage(self._folder).free
        if free >= FREE_BYTES:
            return ""
        return f"{free // 1024**2} MB free in {self._folder}, a few sandboxes need {FREE_BYTES // 1024**2}"

    def start(self, bundle: Bundle) -> LocalCluster:
        """A running copy of the bundle's template. Raises BundleFaulty or SandboxFailed."""
        folder = self._clusters_folder / uuid.uuid4().hex[:8]
        try:
            template = self._templates.copy(bundle, folder)
        except (OSError, psycopg.Error) as error:
            raise SandboxFailed(f"the bundle's template could not be made: {error}") from error
        databases = database_names(bundle)
        server = Server(folder, self._isolation, databases[MAIN_SEED])
        cluster = LocalCluster(server, databases, self._templates, template, self._total_bytes)
        try:
            server.start()
        except BaseException:
            cluster.stop()
            raise
        with self._guard:
            self._clusters = {known for known in self._clusters if known.alive()} | {cluster}
        return cluster

    def forget(self, bundle: Bundle) -> None:
        """Remove the bundle's template, unless a cluster uses it."""
        self._templates.forget(bundle)

    def close(self) -> None:
        """Stop every cluster and release the folder."""
        with self._guard:
            for cluster in self._clusters:
                cluster.stop()
        self._lock_file.close()

    def _templates_under(self, isolation: Isolation) -> Templates:
        return Templates(self._folder / "templates", self._folder / "drafts", isolation)

    def _trial(self, isolation: Isolation) -> str:
        """Runs what a sandbox runs: a copy of the base template (made by initdb when missing) that answers."""
        folder = self._clusters_folder / "trial"
        server = Server(folder, isolation, "template1")
        try:
            copy_cluster(self._templates_under(isolation).base(), folder, isolation)
            server.start()
        except (SandboxFailed, OSError) as error:
            return str(error)
        finally:
            server.remove()
        return ""

    def _sweep(self) -> None:
        """Kill and remove what a killed verifier left: clusters, drafts, and templates whose data may have aged."""
        folder = self._folder
        leftovers = [*self._clusters_folder.glob("*"), *folder.glob("drafts/*"), *folder.glob("templates/bundle-*")]
        for path in leftovers:
            end_processes(path)
            remove_segments(path)
            shutil.rmtree(path, ignore_errors=True)
        if leftovers:
            log.info("removed %d leftover sandbox folders of an earlier verifier", len(leftovers))


def _server_version() -> str:
    answer = subprocess.run([program("postgres"), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+(\.\d+)*", answer)
    return found[0] if found else answer.strip()
