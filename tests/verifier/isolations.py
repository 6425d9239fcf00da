"""The isolations that tests run under, each where it works."""

import shutil
import subprocess
from pathlib import Path

import pytest

from services.verifier.sandbox.isolation import Isolation, choose_isolation

MEMORY_BYTES = 256 * 1024**2


def bubblewrap_works() -> bool:
    """Whether bwrap is here and can open a user namespace."""
    trial = ["bwrap", "--ro-bind", "/", "/", "--unshare-user", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(trial, capture_output=True, check=False).returncode == 0


needs_bubblewrap = pytest.mark.skipif(not bubblewrap_works(), reason="bubblewrap does not work here")

ISOLATIONS = [pytest.param("bubblewrap", marks=needs_bubblewrap), "process"]


def isolation_named(name: str, folder: Path) -> Isolation:
    """Exactly that one, whatever is stronger."""
    return choose_isolation(
        folder, MEMORY_BYTES, name.split()[0], lambda isolation: "" if isolation.name == name else "not asked for"
    )
