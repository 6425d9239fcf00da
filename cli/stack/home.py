"""The stack's folder: what lies where, the ports and secrets chosen once, the model it serves."""

import os
import secrets
import socket
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from shared.auth import Scope, read_token, write_tokens
from shared.contracts.rollout import Regime
from shared.ids import sha256_hex

HOME_VARIABLE = "SQLCLIMB_HOME"
"""Where a user's commands look for their stack."""

STACK_VARIABLE = "SQLCLIMB_STACK"
"""Set by the supervisor in every process of a stack, and inherited: the mark by which the reaper knows them."""

TOKEN_SCOPES = {
    "admin": [Scope.ADMIN],
    "author": [Scope.AUTHOR, Scope.GOLD, Scope.SAMPLE],
    "rollout": [Scope.SAMPLE, Scope.GOLD],
    "trainer": [Scope.TRAIN, Scope.SAMPLE],
    "golds": [Scope.GOLD],
}
"""Each service's own token; the trainer's cannot see golds. `golds`: what a `train --golds` reads them with."""

PORTS = (
    "postgres",
    "ray",
    "ray_dashboard",
    "ray_agent",
    "ray_agent_grpc",
    "ray_client",
    "ray_metrics",
    "ray_runtime_env",
    "engine",
    "verifier",
    "author",
    "inference",
    "rollout",
    "trainer",
)


class ServedModel(BaseModel):
    """The base model of the stack and how it is asked by default."""

    model_config = ConfigDict(extra="forbid")
    path: str
    served_name: str
    regime: Regime = Regime()
    max_tokens: int = 4096
    """Reply budget."""

    context_tokens: int = 8192
    """Prompt and reply together: the engine's maximum."""


class Place(BaseModel):
    """Where what listens on a port runs."""

    model_config = ConfigDict(extra="forbid")
    address: str = "127.0.0.1"
    """It listens there, and others call it there."""

    enter: list[str] = []
    """What its command begins with, e.g. to enter a network namespace."""


class StackState(BaseModel):
    """`stack.json`: what a stack keeps from one `up` to the next."""

    model_config = ConfigDict(extra="forbid")
    ports: dict[str, int]
    database_password: str
    model: ServedModel | None = None
    places: dict[str, Place] = {}
    """By the name of its port: what does not run on loopback, as `.ci/network_namespaces.py` has it."""

    def place(self, port: str) -> Place:
        """Where what listens on a port runs."""
        return self.places.get(port) or Place()


class StackHome:
    """Paths and state of one stack."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.logs = self.folder / "logs"
        self.domains = self.folder / "domains"
        self.artifacts = self.folder / "artifacts"
        self.tokens_file = self.folder / "tokens.json"
        self.token_file = self.folder / "token"
        self.state_file = self.folder / "stack.json"
        self.ray_token_file = self.folder / "ray-token"

    @classmethod
    def from_environment(cls) -> "StackHome":
        """`SQLCLIMB_HOME`, else `~/.sqlclimb`."""
        return cls(Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".sqlclimb"))

    @property
    def short_folder(self) -> Path:
        """A folder for sockets: their paths may hold 107 bytes, which a deep home leaves no room for."""
        return Path("/tmp") / f"sqlclimb-{sha256_hex(str(self.folder))[:8]}"  # noqa: S108  # private: mode 0700

    @property
    def sandboxes(self) -> Path:
        """Where the verifier keeps its clusters: a tmpfs where there is one, which starts them ten times faster."""
        memory = Path("/dev/shm")  # noqa: S108  # made private by the verifier
        return (memory if os.access(memory, os.W_OK) else self.short_folder) / f"{self.short_folder.name}-sandboxes"

    def load(self) -> StackState | None:
        """The kept state; None before the first `up`."""
        return StackState.model_validate_json(self.state_file.read_text()) if self.state_file.exists() else None

    def save(self, state: StackState) -> None:
        """Write the state, readable by its owner only."""
        _write_private(self.state_file, state.model_dump_json(indent=1))

    def prepare(self) -> StackState:
        """Make the folder, its secrets and its ports where they are missing; returns the state."""
        for folder in (self.folder, self.logs, self.domains, self.artifacts, self.short_folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.short_folder.chmod(0o700)
        if not self.tokens_file.exists():
            write_tokens(self.tokens_file, TOKEN_SCOPES)
        _write_private(self.token_file, read_token(self.tokens_file, "admin"))
        if not self.ray_token_file.exists():
            _write_private(self.ray_token_file, secrets.token_hex(32))
        state = self.load()
        if state is None:
            state = StackState(
                ports=dict(zip(PORTS, free_ports(len(PORTS)), strict=True)), database_password=secrets.token_hex(16)
            )
            self.save(state)
        return state

    def url(self, state: StackState, service: str) -> str:
        """Address of one service."""
        return f"http://{state.place(service).address}:{state.ports[service]}"


def free_ports(count: int) -> list[int]:
    """Distinct ports nothing listens on now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def is_taken(port: int) -> bool:
    """Whether something listens on a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)
