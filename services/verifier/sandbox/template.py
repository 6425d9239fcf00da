"""Warm templates: one cluster with roles and grants, and from it one a bundle with all seeds loaded. Blocking.

A sandbox is a copy of its bundle's template, so its start costs a copy and a server start. Templates of killed builds
never appear: a template is renamed into place when it is finished.
"""

import hashlib
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import sql

from services.verifier.sandbox.grants import TEMPLATE_SQL, after_load
from services.verifier.sandbox.isolation import Isolation
from services.verifier.sandbox.protocol import MAIN_SEED, BundleFaulty, Role, SandboxFailed, seed_names
from services.verifier.sandbox.server import Server
from shared.domain import Bundle
from shared.embedded_postgres import program

BUNDLES_KEPT = 8
"""Bundle templates kept on disk (8 MB a seed and some); the longest unused goes first."""

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
"""Small, idle-quiet, nothing durable (a sandbox is thrown away), and no statement text in logs or activity views."""


def database_names(bundle: Bundle) -> dict[str, str]:
    """Seed name to database name."""
    return {seed: f"seed_{number}" for number, seed in enumerate(seed_names(bundle))}


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


def _drop(admin: psycopg.Connection, *databases: str) -> None:
    """A sandbox is copied often: databases that it never opens are 7 MB each for nothing."""
    for database in databases:
        admin.execute("UPDATE pg_database SET datistemplate = false WHERE datname = %s", (database,))
        admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(database)))


class Templates:
    """The templates below one folder. Thread-safe."""

    def __init__(self, folder: Path, drafts: Path, isolation: Isolation) -> None:
        """Templates lie in `folder`, those being built in `drafts` (on the same file system)."""
        self._folder = folder
        self._drafts = drafts
        self._isolation = isolation
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        folder.mkdir(exist_ok=True)
        drafts.mkdir(exist_ok=True)

    def of(self, bundle: Bundle) -> Path:
        """The template folder of a bundle, built when missing. Raises BundleFaulty or SandboxFailed."""
        target = self._folder / f"bundle-{bundle.digest[:16]}"
        with self._lock(target.name):
            if not target.exists():
                self._forget_oldest()
                self._build(target, lambda draft: self._load(draft, bundle), self._base())
            target.touch()
        return target

    def _lock(self, name: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(name, threading.Lock())

    def _forget_oldest(self) -> None:
        bundles = sorted(self._folder.glob("bundle-*"), key=lambda path: path.stat().st_mtime)
        for path in bundles[: max(0, len(bundles) - BUNDLES_KEPT + 1)]:
            shutil.rmtree(path, ignore_errors=True)

    def _base(self) -> Path:
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
        (draft / "id").write_text(uuid.uuid4().hex)
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
            _drop(connection, "postgres", "template0")

    def _load(self, server: Server, bundle: Bundle) -> None:
        with psycopg.connect(host=server.host, user=Role.ADMIN, dbname="template1", autocommit=True) as admin:
            for seed, database in database_names(bundle).items():
                create = "CREATE DATABASE {} OWNER owner TEMPLATE template1 STRATEGY file_copy"
                admin.execute(sql.SQL(create).format(sql.Identifier(database)))
                seed_sql = bundle.variants.get(seed, bundle.seed_sql)
                self._load_seed(server, database, seed, [bundle.schema_sql, seed_sql])
        main = database_names(bundle)[MAIN_SEED]
        with psycopg.connect(host=server.host, user=Role.ADMIN, dbname=main, autocommit=True) as admin:
            _drop(admin, "template1")

    def _load_seed(self, server: Server, database: str, seed: str, scripts: list[str]) -> None:
        """The scripts as the database's owner, then the reading roles' grants as the administrator."""
        try:
            with psycopg.connect(host=server.host, user="owner", dbname=database) as owner:
                for script in scripts:
                    if script.strip():
                        owner.execute(script.encode())
        except psycopg.Error as error:
            raise BundleFaulty(f"seed `{seed}` does not load: {str(error).strip()}") from error
        with psycopg.connect(host=server.host, user=Role.ADMIN, dbname=database, autocommit=True) as admin:
            schemas = admin.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
            ).fetchall()
            admin.execute(after_load(database, [name for (name,) in schemas]))
            admin.execute("ANALYZE")
