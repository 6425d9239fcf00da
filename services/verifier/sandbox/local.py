"""The local driver: each sandbox is a Postgres process on a copy of its bundle's template."""

import fcntl
import logging
import re
import shutil
import subprocess
import threading
import uuid
from pathlib import Path

import psutil

from services.verifier.sandbox.isolation import choose_isolation
from services.verifier.sandbox.protocol import MAIN_SEED, SandboxFailed
from services.verifier.sandbox.server import Server, kill_tree
from services.verifier.sandbox.template import Templates, copy_cluster, database_names
from shared.domain import Bundle
from shared.embedded_postgres import program

log = logging.getLogger(__name__)


class LocalCluster:
    """A running copy of a template."""

    def __init__(self, server: Server, databases: dict[str, str], data_id: str) -> None:
        self._server = server
        self._data_id = data_id
        self._databases = databases

    @property
    def host(self) -> str:
        """The socket folder."""
        return self._server.host

    @property
    def data_id(self) -> str:
        """The template's id."""
        return self._data_id

    def database(self, seed: str) -> str:
        """The database that holds a seed."""
        return self._databases[seed]

    def alive(self) -> bool:
        """Whether its process runs."""
        return self._server.alive()

    def stop(self) -> None:
        """Kill it and remove its folder."""
        self._server.remove()


class LocalDriver:
    """Clusters below one folder, which belongs to one verifier at a time (a lock says so)."""

    def __init__(self, folder: Path, memory_bytes: int, isolation: str | None) -> None:
        """Removes what a killed verifier left. Raises SandboxFailed when the folder is in use, PostgresUnavailable."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        self._lock_file = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock_file.close()
            raise SandboxFailed(f"{folder} is in use by another verifier: give this one another folder") from error
        self._clusters_folder = folder / "clusters"
        self._sweep(folder)
        self._clusters_folder.mkdir(exist_ok=True)
        self._isolation = choose_isolation(folder, memory_bytes, isolation)
        self._templates = Templates(folder / "templates", folder / "drafts", self._isolation)
        self._version = _server_version()
        self._clusters: set[LocalCluster] = set()
        self._guard = threading.Lock()

    @property
    def isolation(self) -> str:
        """`bubblewrap` or `process`."""
        return self._isolation.name

    @property
    def postgres_version(self) -> str:
        """E.g. `18.6`."""
        return self._version

    def start(self, bundle: Bundle) -> LocalCluster:
        """A running copy of the bundle's template. Raises BundleFaulty or SandboxFailed."""
        folder = self._clusters_folder / uuid.uuid4().hex[:8]
        template = self._templates.of(bundle)
        copy_cluster(template, folder, self._isolation)
        databases = database_names(bundle)
        server = Server(folder, self._isolation, databases[MAIN_SEED])
        try:
            server.start()
        except BaseException:
            server.remove()
            raise
        cluster = LocalCluster(server, databases, (template / "id").read_text())
        with self._guard:
            self._clusters = {known for known in self._clusters if known.alive()} | {cluster}
        return cluster

    def close(self) -> None:
        """Stop every cluster and release the folder."""
        with self._guard:
            for cluster in self._clusters:
                cluster.stop()
        self._lock_file.close()

    def _sweep(self, folder: Path) -> None:
        """Kill and remove what a killed verifier left: clusters, drafts, and templates whose data may have aged."""
        leftovers = [*self._clusters_folder.glob("*"), *folder.glob("drafts/*"), *folder.glob("templates/bundle-*")]
        for path in leftovers:
            _kill_leftover(path)
            shutil.rmtree(path, ignore_errors=True)
        if leftovers:
            log.info("removed %d leftover sandbox folders of an earlier verifier", len(leftovers))


def _kill_leftover(folder: Path) -> None:
    """Kill the process whose id the folder holds, if that id is still the process that was started there."""
    try:
        pid = int((folder / "pid").read_text())
        command = " ".join(psutil.Process(pid).cmdline())
    except (OSError, ValueError, psutil.Error):
        return
    if str(folder) in command:
        psutil.wait_procs(kill_tree(pid), timeout=5)


def _server_version() -> str:
    answer = subprocess.run([program("postgres"), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+(\.\d+)*", answer)
    return found[0] if found else answer.strip()
