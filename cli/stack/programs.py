"""What supervisord runs for each part of the stack: pure functions from the stack's home and state to programs."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cli.stack.home import HOME_VARIABLE, STACK_VARIABLE, Place, StackHome, StackState
from shared.settings import REPOSITORY

RAY_OBJECT_STORE_BYTES = 200_000_000
RAY_CPUS = 4
"""Logical: with as many as the machine has, Serve replicas would starve the trainer's workers."""

NEEDS: dict[str, tuple[str, ...]] = {
    "postgres": (),
    "ray": (),
    "engine": (),
    "verifier": (),
    "author": ("postgres", "verifier"),
    "inference": ("postgres", "engine"),
    "rollout": ("postgres", "ray", "author", "verifier", "inference"),
    "trainer": ("postgres", "ray", "rollout", "inference"),
}
"""Each part and what it calls; in starting order."""

SERVICES = ("verifier", "author", "inference", "rollout", "trainer")
"""The parts that speak design section 6 (health, readiness, metrics, OpenAPI)."""


TEACHER_PREFIXES = ("SQLCLIMB_ANTHROPIC_", "SQLCLIMB_OPENAI_", "SQLCLIMB_TEACHER_", "SQLCLIMB_ENDPOINTS_ALLOWED")

ENDPOINTS_ALLOWED = ["public", "http://localhost", "http://127.0.0.1", "http://[::1]"]
"""Models elsewhere that may be sampled: of providers, and of servers on this machine. The caller's own list wins."""


@dataclass(frozen=True)
class Program:
    """One supervised process."""

    name: str
    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    stop_signal: str = "TERM"
    stop_seconds: int = 25
    """How long it may take to end after that signal; then it is killed with its group."""


def with_needs(parts: list[str]) -> list[str]:
    """`parts` and all they need, in starting order. Raises ValueError for an unknown name."""
    unknown = sorted(set(parts) - NEEDS.keys())
    if unknown:
        raise ValueError(f"no service {', '.join(unknown)}; there are {', '.join(SERVICES)}")
    wanted: set[str] = set()
    queue = list(parts)
    while queue:
        part = queue.pop()
        if part not in wanted:
            wanted.add(part)
            queue.extend(NEEDS[part])
    return [part for part in NEEDS if part in wanted]


def database_dsn(state: StackState) -> str:
    """The embedded control database's address."""
    address = f"{state.place('postgres').address}:{state.ports['postgres']}"
    return f"postgresql://sqlclimb:{state.database_password}@{address}/postgres"


def common_environment(home: StackHome, state: StackState) -> dict[str, str]:
    """What every process of the stack gets."""
    environment = {
        HOME_VARIABLE: str(home.folder),
        STACK_VARIABLE: str(home.folder),
        "SQLCLIMB_TOKENS_FILE": str(home.tokens_file),
        "SQLCLIMB_DB": database_dsn(state),
        "SQLCLIMB_DOMAINS": json.dumps([str(home.domains), str(REPOSITORY / "domains")]),
        "SQLCLIMB_ARTIFACTS": home.artifacts.as_uri(),
        "SQLCLIMB_ENDPOINTS_ALLOWED": json.dumps(ENDPOINTS_ALLOWED),
        "SQLCLIMB_RAY_ADDRESS": f"127.0.0.1:{state.ports['ray']}",
        "SQLCLIMB_RAY_DASHBOARD_URL": home.url(state, "ray_dashboard"),
        "RAY_ADDRESS": f"127.0.0.1:{state.ports['ray']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(home.ray_token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
    }
    environment |= {f"SQLCLIMB_{service.upper()}_URL": home.url(state, service) for service in SERVICES}
    return environment


def teacher_environment(caller: Mapping[str, str]) -> dict[str, str]:
    """The caller's settings of models elsewhere: the author's keys, addresses and prices, and whom rollout may ask."""
    return {name: value for name, value in caller.items() if name.startswith(TEACHER_PREFIXES)}


def programs(home: StackHome, state: StackState) -> dict[str, Program]:
    """Every program that the state allows: the engine and what needs it only once a model is known."""
    ports = state.ports
    found = [
        Program(
            "postgres",
            [sys.executable, "-m", "shared.control_database"],
            {"SQLCLIMB_CONTROL_DATA": str(home.folder / "control-database")},
            stop_signal="INT",  # a fast shutdown: it does not wait for its clients
        ),
        Program("ray", ray_argv(home, state), stop_seconds=3),  # it never ends by itself when its group gets SIGTERM
        service_program("verifier", ports, {"SQLCLIMB_SANDBOXES": str(home.sandboxes)}),
        service_program("author", ports),
    ]
    if state.model is not None:
        model = {
            "SQLCLIMB_MODEL": state.model.path,
            "SQLCLIMB_SERVED_NAME": state.model.served_name,
            "SQLCLIMB_MAX_MODEL_LEN": str(state.model.context_tokens),
        }
        gateway = {
            "SQLCLIMB_ENGINE_URLS": json.dumps([home.url(state, "engine")]),
            "SQLCLIMB_ADAPTERS_CACHE": str(home.folder / "adapters-cache"),
        }
        dashboard = home.url(state, "ray_dashboard")  # else Ray's client takes RAY_ADDRESS, and asks there instead
        learner = {"SQLCLIMB_CHECKPOINTS": str(home.folder / "checkpoints"), "SQLCLIMB_GOLD_TOKEN_NAME": "golds"}
        found += [
            Program(
                "engine",
                [sys.executable, "-m", "services.inference.engine"],
                model | {"SQLCLIMB_PORT": str(ports["engine"])},
            ),
            service_program("inference", ports, model | gateway),
            service_program("rollout", ports),
            service_program("trainer", ports, model | learner | {"RAY_API_SERVER_ADDRESS": dashboard}),
        ]
    return {program.name: _placed(program, state.place(program.name)) for program in found}


def _placed(program: Program, place: Place) -> Program:
    environment = program.environment | {"SQLCLIMB_HOST": place.address}
    return replace(program, argv=[*place.enter, *program.argv], environment=environment)


def service_program(name: str, ports: dict[str, int], environment: dict[str, str] | None = None) -> Program:
    """A service of ours on its port, with its own token where it calls others."""
    own = {"SQLCLIMB_PORT": str(ports[name])}
    if name in ("author", "rollout", "trainer"):
        own["SQLCLIMB_TOKEN_NAME"] = name
    return Program(name, [sys.executable, "-m", f"services.{name}"], own | (environment or {}))


def ray_argv(home: StackHome, state: StackState) -> list[str]:
    """A Ray head on loopback, and its dashboard, which job submission needs."""
    return [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--port={state.ports['ray']}",
        "--include-dashboard=true",
        f"--dashboard-host={state.place('ray_dashboard').address}",
        f"--dashboard-port={state.ports['ray_dashboard']}",
        # all of Ray's fixed ports: two stacks would share the defaults, and jobs then find no agent
        f"--dashboard-agent-listen-port={state.ports['ray_agent']}",
        f"--dashboard-agent-grpc-port={state.ports['ray_agent_grpc']}",
        f"--ray-client-server-port={state.ports['ray_client']}",
        f"--metrics-export-port={state.ports['ray_metrics']}",
        f"--runtime-env-agent-port={state.ports['ray_runtime_env']}",
        f"--num-cpus={RAY_CPUS}",
        f"--object-store-memory={RAY_OBJECT_STORE_BYTES}",
        f"--temp-dir={home.short_folder / 'ray'}",
        "--disable-usage-stats",
    ]
