"""How a sandbox's processes are kept in, strongest first: what works here is found by trying it at start.

- `bubblewrap`: users, network, processes and IPC of its own; the system read-only, only the sandbox's folder writable;
  system calls filtered; address space capped; every process ends with the verifier.
- `bubblewrap without seccomp`: the same, with every system call.
- `process`: the machine's network and processes are visible, files are what the user (`nobody` when root) may reach;
  system calls filtered, so that no socket but a Unix one can be made; no new privileges; address space capped; the
  server ends with the verifier, a backend of it by its statement timeout or at the verifier's next start.
- `process without seccomp`: the same, with every system call.

In each the SQL walls (parser, grants, session settings) stand in front; this is what stands behind them.
"""

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.verifier.sandbox import confine, seccomp
from shared.embedded_postgres import POSTGRES_UID, PostgresUnavailable, program

log = logging.getLogger(__name__)

INSIDE = Path("/sandbox")
"""Where a sandbox's folder appears to processes in bubblewrap."""

WITHOUT_SECCOMP = " without seccomp"


class Isolation(Protocol):
    """Builds command lines that run confined to one folder."""

    @property
    def name(self) -> str:
        """As `/readyz` shows it: `bubblewrap` or `process`, and ` without seccomp` where that does not work."""

    def inner(self, folder: Path) -> Path:
        """Path of `folder` as the confined process sees it."""

    def command(self, argv: list[str], folder: Path) -> list[str]:
        """`argv` confined to `folder`."""

    def own(self, folder: Path) -> None:
        """Give a fresh folder to the user that confined processes run as."""


@dataclass(frozen=True)
class Bubblewrap:
    """Namespaces of its own; a read-only system; only the sandbox's folder is writable."""

    path: str
    memory_bytes: int
    passwd: Path
    filter_file: Path | None

    @property
    def name(self) -> str:
        """With or without seccomp."""
        return "bubblewrap" if self.filter_file else "bubblewrap" + WITHOUT_SECCOMP

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
        bwrap = [
            self.path,
            *("--unshare-all", "--uid", "1000", "--gid", "1000", "--die-with-parent", "--new-session", "--as-pid-1"),
            *(word for path in read_only for word in ("--ro-bind-try", path, path)),
            *("--ro-bind", str(self.passwd), "/etc/passwd"),
            *("--proc", "/proc", "--dev", "/dev", "--bind", str(folder), str(INSIDE)),
            *("--remount-ro", "/dev", "--remount-ro", "/"),  # both are memory that no cap counts
            *("--chdir", str(INSIDE), *argv),
        ]
        return _confined("bubblewrap", self.memory_bytes, None, self.filter_file, bwrap)


@dataclass(frozen=True)
class UnprivilegedProcess:
    """No namespaces. Root becomes `nobody`, another user stays who it is."""

    memory_bytes: int
    filter_file: Path | None

    @property
    def name(self) -> str:
        """With or without seccomp."""
        return "process" if self.filter_file else "process" + WITHOUT_SECCOMP

    def inner(self, folder: Path) -> Path:
        """The folder itself."""
        return folder

    def own(self, folder: Path) -> None:
        """To `nobody` when this process is root."""
        if os.geteuid() == 0:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, POSTGRES_UID, POSTGRES_UID, follow_symlinks=False)

    def command(self, argv: list[str], folder: Path) -> list[str]:
        """As another user when root; without new privileges."""
        uid = POSTGRES_UID if os.geteuid() == 0 else None
        return _confined("process", self.memory_bytes, uid, self.filter_file, argv)


def _confined(how: str, memory_bytes: int, uid: int | None, filter_file: Path | None, argv: list[str]) -> list[str]:
    launcher = [sys.executable, "-I", "-S", confine.__file__]
    user, program_file = ("-" if value is None else str(value) for value in (uid, filter_file))
    return [*launcher, how, str(os.getpid()), str(memory_bytes), user, program_file, *argv]


def choose_isolation(
    folder: Path, memory_bytes: int, wanted: str | None, trial: Callable[[Isolation], str]
) -> Isolation:
    """The strongest isolation under which `trial` has nothing to complain of; `wanted` leaves only that kind.

    `trial` runs Postgres and answers why it failed, or nothing. Raises PostgresUnavailable when none works.
    """
    complaints: list[str] = []
    for isolation in _strongest_first(folder, memory_bytes, wanted):
        complaint = trial(isolation)
        if not complaint:
            level = logging.WARNING if complaints or isolation.name != "bubblewrap" else logging.INFO
            chosen = f"sandboxes run under isolation `{isolation.name}`."
            log.log(level, "%s", " ".join([chosen, *complaints]))
            return isolation
        complaints.append(f"`{isolation.name}` does not work here: {complaint}.")
    if wanted == "bubblewrap" and not complaints:
        complaints.append("bwrap is not installed.")
    raise PostgresUnavailable(f"no sandbox can be started. {' '.join(complaints)}")


def _strongest_first(folder: Path, memory_bytes: int, wanted: str | None) -> Iterator[Isolation]:
    filters: list[Path | None] = [None]
    if seccomp.supported():
        filter_file = folder / "seccomp.bpf"
        filter_file.write_bytes(seccomp.bpf_filter())
        filters.insert(0, filter_file)
    path = shutil.which("bwrap")
    if path is not None and wanted != "process":
        passwd = folder / "passwd"
        passwd.write_text("sandbox:x:1000:1000::/:/bin/false\n")
        yield from (Bubblewrap(path, memory_bytes, passwd, filter_file) for filter_file in filters)
    if wanted != "bubblewrap":
        yield from (UnprivilegedProcess(memory_bytes, filter_file) for filter_file in filters)
