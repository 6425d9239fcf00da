"""How a sandbox's processes are kept in: bubblewrap where it works here, else an unprivileged process.

Chosen once, at start, by a trial run of the real command; the choice is logged and shown in `/readyz`.
"""

import logging
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shared.embedded_postgres import POSTGRES_UID, PostgresUnavailable, program

log = logging.getLogger(__name__)

INSIDE = Path("/sandbox")
"""Where a sandbox's folder appears to processes in bubblewrap."""

_TRIAL_SECONDS = 20


class Isolation(Protocol):
    """Builds command lines that run confined to one folder."""

    @property
    def name(self) -> str:
        """As the contract names it: `bubblewrap` or `process`."""

    def inner(self, folder: Path) -> Path:
        """Path of `folder` as the confined process sees it."""

    def command(self, argv: list[str], folder: Path) -> list[str]:
        """`argv` confined: it may write below `folder` only (bubblewrap), and ends with its parent."""

    def own(self, folder: Path) -> None:
        """Give a fresh folder to the user that confined processes run as."""


def _limited(argv: list[str], memory_bytes: int) -> list[str]:
    """`argv` with its address space capped, for itself and each backend it forks."""
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        raise PostgresUnavailable("prlimit (util-linux) is missing: sandboxes would have no memory cap; install it")
    return [prlimit, f"--as={memory_bytes}", "--core=0", *argv]


@dataclass(frozen=True)
class Bubblewrap:
    """Own user, PID, network and IPC namespaces; a read-only system; only the sandbox's folder is writable."""

    path: str
    memory_bytes: int
    passwd: Path
    name: str = "bubblewrap"

    def inner(self, folder: Path) -> Path:
        """Always `/sandbox`."""
        return INSIDE

    def own(self, folder: Path) -> None:
        """Nothing to do: the caller's own uid is the sandbox's, under another number."""

    def command(self, argv: list[str], folder: Path) -> list[str]:
        """Postgres is PID 1 inside, so killing it ends everything there."""
        package = program("postgres").parents[2]
        libraries = package.parent / "embedded_postgres.libs"
        read_only = ["/usr", "/bin", "/lib", "/lib64", str(package), str(libraries)]
        return [
            self.path,
            *("--unshare-all", "--uid", "1000", "--gid", "1000", "--die-with-parent", "--new-session", "--as-pid-1"),
            *("--tmpfs", "/tmp"),  # noqa: S108  # first: the environment may itself lie below /tmp
            *(word for path in read_only for word in ("--ro-bind-try", path, path)),
            *("--ro-bind", str(self.passwd), "/etc/passwd"),
            *("--proc", "/proc", "--dev", "/dev", "--bind", str(folder), str(INSIDE)),
            *("--chdir", str(INSIDE), "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LC_ALL", "C"),
            *_limited(argv, self.memory_bytes),
        ]


@dataclass(frozen=True)
class UnprivilegedProcess:
    """No namespaces: the grants and the parser are the walls. Root becomes `nobody`."""

    memory_bytes: int
    name: str = "process"

    def inner(self, folder: Path) -> Path:
        """The folder itself."""
        return folder

    def own(self, folder: Path) -> None:
        """To `nobody` when this process is root."""
        if os.geteuid() == 0:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, POSTGRES_UID, POSTGRES_UID, follow_symlinks=False)

    def command(self, argv: list[str], folder: Path) -> list[str]:
        """By setpriv: another uid when root, and death with the parent."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise PostgresUnavailable("setpriv (util-linux) is missing and bubblewrap does not work here: install one")
        user = [f"--reuid={POSTGRES_UID}", f"--regid={POSTGRES_UID}", "--clear-groups"] if os.geteuid() == 0 else []
        environment = ["env", "-i", "PATH=/usr/bin:/bin", "LC_ALL=C"]
        return [setpriv, *user, "--pdeathsig=KILL", *environment, *_limited(argv, self.memory_bytes)]


def choose_isolation(folder: Path, memory_bytes: int, wanted: str | None) -> Isolation:
    """The strongest isolation that works here, or `wanted`. Raises PostgresUnavailable when that does not run."""
    passwd = folder / "passwd"
    passwd.write_text("sandbox:x:1000:1000::/:/bin/false\n")
    process = UnprivilegedProcess(memory_bytes)
    path = shutil.which("bwrap")
    why = "bwrap is not installed"
    if path is not None:
        confined = Bubblewrap(path, memory_bytes, passwd)
        why = _trial(confined, folder)
    if wanted != process.name and path is not None and not why:
        log.info("sandboxes run under bubblewrap")
        return confined
    if wanted == "bubblewrap":
        raise PostgresUnavailable(f"bubblewrap was asked for and does not work here: {why}")
    if problem := _trial(process, folder):
        raise PostgresUnavailable(f"Postgres does not run here: {problem}")
    log.warning("sandboxes run as plain unprivileged processes: %s", "as asked" if wanted else why)
    return process


def _trial(isolation: Isolation, folder: Path) -> str:
    """Empty when Postgres runs under `isolation` and may write below `folder`, else why not."""
    owned = folder / "trial"
    owned.mkdir(exist_ok=True)
    isolation.own(owned)
    try:
        for argv in ([str(program("postgres")), "--version"], ["touch", str(isolation.inner(owned) / "written")]):
            confined = isolation.command(argv, owned)
            done = subprocess.run(confined, capture_output=True, text=True, timeout=_TRIAL_SECONDS, check=False)
            if done.returncode != 0:
                return done.stderr.strip()[-300:] or f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        shutil.rmtree(owned, ignore_errors=True)
    return ""
