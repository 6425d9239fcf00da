"""The embedded control database: `python -m shared.control_database` makes a cluster if there is none and becomes it.

For one machine. A cluster brings its own Postgres and sets `SQLCLIMB_DB` only.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field

from shared.embedded_postgres import program, unprivileged
from shared.settings import DatabaseSettings, load

INITDB_SECONDS = 120


class ControlDatabaseSettings(DatabaseSettings):
    """The embedded control database."""

    control_data: Path = Field(description="folder of the cluster's files; made when absent")


def initialise(data: Path, user: str, password: str) -> None:
    """Make the cluster, which appears by rename. Raises RuntimeError with initdb's own words."""
    data.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data.parent) as folder:
        password_file = Path(folder) / "password"
        password_file.write_text(password)
        made = Path(folder) / "data"
        argv = [str(program("initdb")), "--pgdata", str(made), "--username", user, "--pwfile", str(password_file)]
        argv += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        done = subprocess.run(
            unprivileged(argv, Path(folder)), capture_output=True, text=True, timeout=INITDB_SECONDS, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr.strip()[-500:]}")
        made.rename(data)


def server_argv(data: Path, address: str, port: int) -> list[str]:
    """The server's command: durable, sized for one machine."""
    options = {
        "listen_addresses": address,
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": "100",
        "shared_buffers": "64MB",
    }
    argv = [str(program("postgres")), "-D", str(data)]
    for name, value in options.items():
        argv += ["-c", f"{name}={value}"]
    return unprivileged(argv, data)


def main() -> None:
    """Become the server."""
    settings = load(ControlDatabaseSettings)
    address = urlsplit(settings.db.get_secret_value())
    if not (address.username and address.password and address.hostname and address.port):
        raise SystemExit(
            "SQLCLIMB_DB: give user, password, host and port, e.g. postgresql://sqlclimb:…@127.0.0.1:5432/postgres"
        )
    if not (settings.control_data / "PG_VERSION").exists():
        initialise(settings.control_data, address.username, address.password)
    argv = server_argv(settings.control_data, address.hostname, address.port)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
