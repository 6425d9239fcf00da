"""What the verifier asks of a sandbox driver. The local driver starts processes, the cluster's starts Pods."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from shared.domain import Bundle

MAIN_SEED = "main"


class Role(StrEnum):
    """Who logs in. Each logs in as itself; nobody switches roles."""

    CANDIDATE = "candidate"  # model-written SQL
    GOLD = "gold"  # reference SQL: same rights, but its sessions belong to another role
    ADMIN = "postgres"  # the watchdog and the loader; never runs SQL from outside


class SandboxFailed(Exception):
    """The infrastructure could not give a working cluster."""


class BundleFaulty(Exception):
    """The bundle's own SQL fails; the message names the seed and Postgres' complaint."""


class Cluster(Protocol):
    """A running Postgres cluster with one database a seed."""

    @property
    def host(self) -> str:
        """Socket folder or host name, as libpq takes it."""

    @property
    def password(self) -> str | None:
        """Of every role; None where the socket's folder keeps others out."""

    @property
    def data_id(self) -> str:
        """Equal only for clusters that hold the very same rows (a seed may draw on the clock when it loads)."""

    def database(self, seed: str) -> str:
        """The database that holds a seed."""

    def alive(self) -> bool:
        """Whether its server process still runs."""

    def overuse(self) -> str:
        """Empty, or what it uses more of than it may: then it should be stopped. Cheap: asked while statements run.

        A driver whose platform enforces its limits answers nothing.
        """

    def stop(self) -> None:
        """End it and remove all it left. Idempotent; never raises."""


class SandboxDriver(Protocol):
    """Starts clusters. Blocking; thread-safe."""

    @property
    def isolation(self) -> str:
        """How hostile SQL is kept in, e.g. `bubblewrap` or `process without seccomp`."""

    @property
    def postgres_version(self) -> str:
        """Version of the server it runs."""

    def obstacle(self) -> str:
        """Empty, or why sandboxes cannot be started now (e.g. no room)."""

    def start(self, bundle: Bundle) -> Cluster:
        """A fresh cluster with the bundle's seeds loaded, answering queries.

        Raises BundleFaulty or SandboxFailed.
        """

    def forget(self, bundle: Bundle) -> None:
        """The bundle will not be started again soon: free what was kept for that. Idempotent; never raises."""

    def close(self) -> None:
        """Stop every cluster that is left."""


def seed_names(bundle: Bundle) -> Sequence[str]:
    """`main`, then the variants in the order they are compared."""
    return [MAIN_SEED, *bundle.variants]
