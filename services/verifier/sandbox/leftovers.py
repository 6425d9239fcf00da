"""What a killed Postgres may leave on this machine: processes and, outside bubblewrap, System V segments."""

import contextlib
import ctypes
import os
import time
from pathlib import Path

import psutil

IPC_RMID = 0
_SYSV_SEGMENTS = Path("/proc/sysvipc/shm")
_POLL_SECONDS = 0.002
_GONE_SECONDS = 10.0
"""Longest wait for killed processes to be gone."""


def end_processes(folder: Path, *known: psutil.Process) -> None:
    """SIGKILL all that works in `folder` or below, those known, and all their descendants; wait until they are gone.

    The working folder names them: Postgres and its backends work in the data folder, bwrap in the cluster's, so that
    backends are found even when the server that forked them is dead. (Hostile code that got as far as running programs
    can leave its folder under `process`; in bubblewrap's namespace all ends with the first process.) Never raises.
    """
    deadline = time.monotonic() + _GONE_SECONDS
    while time.monotonic() < deadline:
        victims = _family([*_working_below(folder), *(process for process in known if _alive(process))])
        if not victims:
            return
        for victim in victims:
            with contextlib.suppress(psutil.Error):
                victim.kill()
        while any(_alive(victim) for victim in victims) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def _alive(process: psutil.Process) -> bool:
    """A zombie is dead: an orphan's may stay for as long as the machine's first process does not reap it."""
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _working_below(folder: Path) -> list[psutil.Process]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, psutil.Error):  # a zombie has no working folder
            place = os.readlink(f"/proc/{name}/cwd")
            if place == str(folder) or place.startswith(f"{folder}/"):
                found.append(psutil.Process(int(name)))
    return found


def _family(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Found before any is killed: descendants inside a namespace have another working folder."""
    family = dict.fromkeys(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            family.update(dict.fromkeys(process.children(recursive=True)))
    return list(family)


def remove_segments(folder: Path) -> None:
    """Remove the System V segments that servers of a cluster folder made: SIGKILL leaves them behind. Never raises.

    Postgres makes one of 56 bytes a server, as a lock on its data folder.
    """
    owner = folder.stat().st_uid if folder.exists() else -1
    servers = {_number(folder / "pid"), _number(folder / "data" / "postmaster.pid")}
    with contextlib.suppress(OSError, ValueError):
        for line in _SYSV_SEGMENTS.read_text().splitlines()[1:]:
            segment, creator, attached, uid = (int(line.split()[column]) for column in (1, 4, 6, 7))
            if creator in servers and uid == owner and not attached:
                ctypes.CDLL(None).shmctl(segment, IPC_RMID, None)


def _number(file: Path) -> int:
    """The first line: a process id."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(file.read_text().splitlines()[0])
    return -1
