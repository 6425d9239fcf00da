"""No life after the parent: for processes that hold gigabytes and ports."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal this process gets when its parent ends; it survives exec."""


def end_with_parent() -> None:
    """From now on SIGKILL when the parent ends, even by SIGKILL itself."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
