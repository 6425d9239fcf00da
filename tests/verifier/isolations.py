"""The isolations that tests run under, each where it works."""

from pathlib import Path

import pytest

from services.verifier.sandbox.isolation import Isolation, choose_isolation
from shared.embedded_postgres import bubblewrap

MEMORY_BYTES = 256 * 1024**2

ISOLATIONS = [
    pytest.param("bubblewrap", marks=pytest.mark.skipif(bubblewrap() is None, reason="bubblewrap does not work here")),
    "process",
]


def isolation_named(name: str, folder: Path) -> Isolation:
    """Exactly that one, whatever is stronger."""
    return choose_isolation(
        folder, MEMORY_BYTES, name.split()[0], lambda isolation: "" if isolation.name == name else "not asked for"
    )
