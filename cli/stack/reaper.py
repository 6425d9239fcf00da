"""The last resort of `down` and the first step of `up`: end every process that carries this stack's mark."""

import os

import psutil

from cli.stack.home import STACK_VARIABLE, StackHome

TERMINATE_SECONDS = 10.0


def stack_processes(home: StackHome) -> list[psutil.Process]:
    """Processes whose environment names this stack, other than this process and its ancestors."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid not in own and process.environ().get(STACK_VARIABLE) == str(home.folder):
                found.append(process)
        except psutil.Error:  # gone, or another user's
            continue
    return found


def reap(home: StackHome, keep: frozenset[int] = frozenset()) -> int:
    """Terminate, then kill, what the stack left running. Returns how many there were."""
    processes = [process for process in stack_processes(home) if process.pid not in keep]
    for process in processes:
        _signal(process, "terminate")
    _, alive = psutil.wait_procs(processes, timeout=TERMINATE_SECONDS)
    for process in alive:
        _signal(process, "kill")
    psutil.wait_procs(alive, timeout=TERMINATE_SECONDS)
    return len(processes)


def _signal(process: psutil.Process, action: str) -> None:
    try:
        getattr(process, action)()
    except psutil.NoSuchProcess:
        return
