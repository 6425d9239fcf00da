"""Runs a program with a sandbox's limits: `python -I -S confine.py HOW PARENT MEMORY UID FILTER argv…`.

The first process of every sandbox; it becomes `argv`. Standard library only, so that it starts in 15 ms.

- HOW: `bubblewrap` hands the filter to bwrap, which applies it inside; `process` applies it here.
- PARENT: id of the verifier. The program dies with the thread of it that started it.
- MEMORY: bytes of address space, for the program and for each process it forks.
- UID: becomes this user (and group) when root; `-`: stays who it is.
- FILTER: file with a seccomp program; `-`: none.
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER = 2


class _Program(ctypes.Structure):
    """`struct sock_fprog`: instructions of 8 bytes each."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _prctl(option: int, argument: int, pointer: object = None) -> None:
    zero = ctypes.c_ulong(0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), pointer or zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}): {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Limits, user, parent, filter; then the program."""
    how, parent, memory, uid, filter_file, *argv = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # short of memory, the kernel ends a sandbox, not the verifier
    code_file = -1 if filter_file == "-" else os.open(filter_file, os.O_RDONLY)
    if uid != "-":
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which forgets it
    if os.getppid() != int(parent):
        raise SystemExit("the verifier died")
    if how == "bubblewrap" and code_file >= 0:
        os.set_inheritable(code_file, True)
        argv[1:1] = ["--seccomp", str(code_file)]
    if how == "process":
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        if code_file >= 0:
            code = os.read(code_file, 1 << 16)
            _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(_Program(len(code) // 8, code)))
    os.execve(argv[0], argv, {"PATH": "/usr/bin:/bin", "LC_ALL": "C"})


if __name__ == "__main__":
    main()
