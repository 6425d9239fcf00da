"""A real `python -m services.inference` for a benchmark, on a control database of its own."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conftest import started_control_cluster
from tests.inference.conftest import started_gateway
from tests.inference.support import Gateway, Service


@contextlib.contextmanager
def running_gateway(engines: Sequence[Service], model: Path, folder: Path, **settings: str) -> Iterator[Gateway]:
    """In front of these engines; ready. `settings` are SQLCLIMB_… variables without the prefix."""
    for name in ("control", "gateway"):
        (folder / name).mkdir()
    with (
        started_control_cluster(folder / "control") as dsn,
        started_gateway(engines, model, dsn, folder / "gateway", **settings) as gateway,
    ):
        gateway.service.wait_ready()
        yield gateway
