"""Warm templates: one cluster with roles and grants, and from it one a bundle with all seeds loaded. Blocking.

A sandbox is a copy of its bundle's template, so its start costs a copy and a server start. Templates of killed builds
never appear: a template is renamed into place when it is finished.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from services.verifier.sandbox.grants import TEMPLATE_SQL
from services.verifier.sandbox.isolation import Isolation
from services.verifier.sandbox.loading import Address, drop, load
from services.verifier.sandbox.protocol import Role, SandboxFailed
from services.verifier.sandbox.server import Server
from shared.domain import Bundle
from shared.embedded_postgres import program

BUNDLES_KEPT = 8
"""Bundle templates kept on disk (7 MB a seed and some); the longest unused goes first."""

REBUILD_SECONDS = 120.0
"""A template whose last cluster ended so recently stays: that cluster may be rebuilt, and must get the same rows."""

CONFIGURATION = """
listen_addresses = ''
max_connections = 60
superuser_reserved_connections = 4
shared_buffers = 16MB
work_mem = 16MB
hash_mem_multiplier = 1
maintenance_work_mem = 16MB
temp_file_limit = 64MB
jit = off
io_method = sync
dynamic_shared_memory_type = mmap
min_dynamic_shared_memory = 2MB
huge_pages = off
max_worker_processes = 0
max_parallel_workers = 0
max_parallel_workers_per_gather = 0
max_logical_replication_workers = 0
max_wal_senders = 0
wal_level = minimal
fsync = off
synchronous_commit = off
full_page_writes = off
min_wal_size = 2MB
max_wal_size = 32MB
wal_recycle = off
wal_init_zero = off
checkpoint_timeout = 1d
wal_writer_delay = 10s
bgwriter_delay = 10s
bgwriter_lru_maxpages = 0
autovacuum = off
track_activities = off
track_counts = off
update_process_title = off
log_checkpoints = off
log_min_messages = fatal
log_min_error_statement = panic
lc_messages = 'C'
timezone = 'UTC'
log_timezone = 'UTC'
"""
"""Small (of dynamic shared memory reserved at start only what is touched costs), idle-quiet, nothing durable (a sandbox
is thrown away), and no statement text in logs or activity views."""


def copy_cluster(source: Path, target: Path, isolation: Isolation) -> None:
    """`source`'s data folder as a new cluster folder. Raises SandboxFailed."""
    target.mkdir(mode=0o700)
    (target / "s").mkdir(mode=0o700)
    isolation.own(target)
    argv = ["cp", "-a", "--reflink=auto", str(source / "data"), str(target / "data")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        raise SandboxFailed(f"the template could not be copied: {done.stderr.strip()[-200:]}")


def folder_bytes(folder: Path) -> int:
    """What the files below a folder occupy. Files that vanish meanwhile count nothing."""
    occupied = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                occupied += folder_bytes(Path(entry.path))
            else:
                with contextlib.suppress(OSError):
                    occupied += entry.stat(follow_symlinks=False).st_blocks * 512
    return occupied


@dataclass(frozen=True)
class Template:
    """A finished template of a bundle."""

    folder: Path
    data_id: str
    bytes: int
    """What its data folder occupies."""


class Templates:
    """The templates below one folder. Thread-safe."""

    def __init__(self, folder: Path, drafts: Path, isolation: Isolation) -> None:
        """Templates lie in `folder`, those being built in `drafts` (on the same file system)."""
        self._folder = folder
        self._drafts = drafts
        self._isolation = isolation
        self._locks: dict[str, threading.Lock] = {}
        self._users: Counter[str] = Counter()
        self._guard = threading.Lock()
        folder.mkdir(exist_ok=True)
        drafts.mkdir(exist_ok=True)

    def copy(self, bundle: Bundle, target: Path) -> Template:
        """A copy of the bundle's template, which is built when missing and stays until `release`.

        Raises BundleFaulty or SandboxFailed.
        """
        folder = self._folder / f"bundle-{bundle.digest[:16]}"
        with self._lock(folder.name):
            if not folder.exists():
                self._forget_oldest()
                self._build(folder, lambda draft: load(Address(draft.host), bundle), self.base())
            with self._guard:
                self._users[folder.name] += 1
        template = Template(folder, (folder / "id").read_text(), int((folder / "bytes").read_text()))
        try:
            copy_cluster(folder, target, self._isolation)
        except SandboxFailed:
            self.release(template)
            raise
        return template

    def release(self, template: Template) -> None:
        """A cluster copied from it is gone."""
        with contextlib.suppress(OSError):
            template.folder.touch()
        with self._guard:
            self._users[template.folder.name] -= 1

    def forget(self, bundle: Bundle) -> None:
        """Remove a bundle's template, unless a cluster uses it."""
        folder = self._folder / f"bundle-{bundle.digest[:16]}"
        with self._lock(folder.name):
            if not self._users[folder.name]:
                shutil.rmtree(folder, ignore_errors=True)

    def _lock(self, name: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(name, threading.Lock())

    def _forget_oldest(self) -> None:
        """Make room for one more, among those that no cluster uses or used of late."""
        ages = {path: time.time() - path.stat().st_mtime for path in self._folder.glob("bundle-*")}
        oldest = sorted(ages, key=lambda path: -ages[path])
        for path in oldest[: max(0, len(oldest) - BUNDLES_KEPT + 1)]:
            lock = self._lock(path.name)
            if lock.acquire(blocking=False):  # else it is in use
                if ages[path] > REBUILD_SECONDS and not self._users[path.name]:
                    shutil.rmtree(path, ignore_errors=True)
                lock.release()

    def base(self) -> Path:
        """The cluster without a bundle, built when missing. Raises SandboxFailed."""
        content = f"{program('postgres')}{CONFIGURATION}{TEMPLATE_SQL}{self._isolation.name}"
        target = self._folder / f"base-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        with self._lock(target.name):
            if not target.exists():
                self._build(target, self._grant, None)
        return target

    def _build(self, target: Path, fill: Callable[[Server], None], source: Path | None) -> None:
        """Make a cluster (a copy of `source`, or a new one), run `fill` on it, shut it down, rename it into place."""
        draft = self._drafts / uuid.uuid4().hex[:8]
        if source is not None:
            copy_cluster(source, draft, self._isolation)
        else:
            self._initialise(draft)
        server = Server(draft, self._isolation, "template1")
        try:
            server.start()
            fill(server)
            server.shut_down()
        except BaseException:
            server.remove()
            raise
        # Statistics of the load are of no use to a sandbox and cost it 1 MB of shared memory.
        for file in (draft / "data" / "pg_stat").iterdir():
            file.unlink()
        (draft / "id").write_text(uuid.uuid4().hex)
        (draft / "bytes").write_text(str(folder_bytes(draft / "data")))
        draft.rename(target)

    def _initialise(self, draft: Path) -> None:
        draft.mkdir(mode=0o700)
        (draft / "s").mkdir(mode=0o700)
        self._isolation.own(draft)
        argv = [
            *(
                str(program("initdb")),
                "-D",
                str(self._isolation.inner(draft) / "data"),
                "-U",
                Role.ADMIN,
                "-A",
                "trust",
            ),
            *("--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C", "--wal-segsize=1"),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        ]
        confined = self._isolation.command(argv, draft)
        done = subprocess.run(confined, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(draft, ignore_errors=True)
            raise SandboxFailed(f"initdb failed: {done.stderr.strip()[-300:]}")
        with (draft / "data" / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION)

    def _grant(self, server: Server) -> None:
        with psycopg.connect(host=server.host, user=Role.ADMIN, dbname="template1", autocommit=True) as connection:
            connection.execute(TEMPLATE_SQL.encode())
            drop(connection, "postgres", "template0")
            # Every seed of every sandbox is a copy of this database: 5.7 MB instead of 7.4.
            connection.execute("DELETE FROM pg_description")
            connection.execute("VACUUM (FULL, FREEZE)")
