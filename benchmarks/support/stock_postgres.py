"""The rival's database: the same Postgres build and rows, as initdb sets it up, with two ways to log in."""

import contextlib
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from shared.domain import Bundle
from shared.embedded_postgres import POSTGRES_UID, program

START_SECONDS = 30
LOGINS = "local all all trust\nhost all app 127.0.0.1/32 scram-sha-256\n"


@dataclass(frozen=True)
class StockPostgres:
    """Connection strings of a role that may read."""

    with_password: str
    """TCP and scram-sha-256, Postgres' default: how an application's DSN logs in."""
    without: str
    """The Unix socket, trusted: a server that is open to every local user."""


@contextlib.contextmanager
def stock_postgres(folder: Path, bundle: Bundle) -> Iterator[StockPostgres]:
    """A server on `folder` with the bundle's main seed loaded and analysed."""
    data = folder / "data"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, POSTGRES_UID, POSTGRES_UID)
    initdb = _unprivileged(str(program("initdb")), "-D", str(data), "-U", "postgres", "-A", "trust")
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL)
    (data / "pg_hba.conf").write_text(LOGINS)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    argv = _unprivileged(str(program("postgres")), "-D", str(data), "-k", str(folder), "-p", str(port))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(argv, stderr=log, stdout=log)
    try:
        password = secrets.token_hex(16)
        _load(f"host={folder} port={port} user=postgres dbname=postgres", bundle, password)
        yield StockPostgres(
            f"host=127.0.0.1 port={port} user=app password={password} dbname=postgres",
            f"host={folder} port={port} user=app dbname=postgres",
        )
    finally:
        server.terminate()
        server.wait(30)


def _unprivileged(*argv: str) -> list[str]:
    """Postgres refuses to run as root."""
    user = ["setpriv", f"--reuid={POSTGRES_UID}", f"--regid={POSTGRES_UID}", "--clear-groups"]
    return [*(user if os.geteuid() == 0 else []), *argv]


def _load(conninfo: str, bundle: Bundle, password: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            admin = psycopg.connect(conninfo, autocommit=True)
            break
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    with admin:
        for script in (bundle.schema_sql, bundle.seed_sql, f"CREATE ROLE app LOGIN PASSWORD '{password}'"):
            admin.execute(script.encode())
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO app")
        admin.execute("ANALYZE")
