"""The local stack with stubs for author, verifier and engine: what is measured is the rollout service.

Control Postgres, Ray and `python -m services.rollout` are real, and supervised as `sqlclimb up` does it, so that the
`sqlclimb` command works on it and what is killed comes back.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import psycopg

from cli.stack.home import HOME_VARIABLE, ServedModel, StackHome
from cli.stack.programs import Program, common_environment, database_dsn, programs
from cli.stack.reaper import stack_processes
from cli.stack.stack import Stack
from cli.stack.supervisor import Supervisor
from shared.auth import read_token
from shared.clients.base import ServiceUnreachable
from shared.clients.rollout import RolloutClient
from shared.database import migrate
from shared.settings import REPOSITORY

from .stub_engine import BASE

START_SECONDS = 300.0
DOMAIN = "shop"

PARTS = {
    "ServeReplica:rollout:Coordinator": "coordinator",
    "ServeReplica:rollout:RolloutWorker": "workers",
    "stub_engine": "engine",
    "stub_verifier": "verifier",
    "postgres": "postgres",
    "ray": "ray",
}
"""What a process's command line holds, and the part it belongs to; the first that fits counts."""


@dataclass(frozen=True)
class Use:
    """What the processes of one part have used: CPU seconds since their start, MB of memory (proportional set size)."""

    cpu_seconds: float = 0.0
    memory_mb: float = 0.0
    processes: int = 0


class StubStack:
    """One stack in a folder. `engine` are stub_engine's options, e.g. `{"latency-seconds": "1"}`."""

    def __init__(self, folder: Path, tasks: int, engine: Mapping[str, str]) -> None:
        self.home = StackHome(folder)
        self.state = self.home.prepare().model_copy(
            update={"model": ServedModel(path=str(folder), served_name=BASE, max_tokens=64)}
        )
        self.home.save(self.state)
        self._supervisor = Supervisor(self.home)
        self._tasks = tasks
        self._engine = dict(engine)

    @property
    def dsn(self) -> str:
        """Of the control database."""
        return database_dsn(self.state)

    def up(self, engine: Mapping[str, str] | None = None, **settings: str) -> None:
        """Start it, or start again what `engine` or the rollout service's `settings` change; returns when ready.

        `settings` are SQLCLIMB_… variables without the prefix.
        """
        self._engine |= engine or {}
        self._supervisor.configure(self._programs(settings))
        self._supervisor.start(common_environment(self.home, self.state) | {"PYTHONPATH": str(REPOSITORY)})
        self._supervisor.apply(["postgres"])
        self._migrate()
        self._supervisor.apply(["ray", "author", "verifier", "inference", "rollout"])
        asyncio.run(self._wait_ready())

    def down(self) -> None:
        """Leave no process."""
        Stack(self.home, lambda _: None).down()

    def client(self) -> RolloutClient:
        """As its admin; use as `async with`."""
        return RolloutClient(self.home.url(self.state, "rollout"), self.token)

    @property
    def token(self) -> str:
        """The admin's."""
        return read_token(self.home.tokens_file, "admin")

    def command(self, *words: str) -> "subprocess.Popen[str]":
        """`sqlclimb WORDS…` against this stack, started."""
        return subprocess.Popen(
            [sys.executable, "-m", "cli.main", *words],
            env=os.environ | {HOME_VARIABLE: str(self.home.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def processes(self, part: str) -> list[psutil.Process]:
        """The running processes of one of `PARTS`."""
        return [process for process in stack_processes(self.home) if part_of(process) == part]

    def use(self) -> dict[str, Use]:
        """What each part has used."""
        found: dict[str, Use] = defaultdict(Use)
        for process in stack_processes(self.home):
            with contextlib.suppress(psutil.NoSuchProcess):
                part = part_of(process)
                backends = process.children() if part == "postgres" else []  # their titles hide their environment
                for one in (process, *backends):
                    times, memory = one.cpu_times(), one.memory_full_info().pss / 1e6
                    known = found[part]
                    seconds = known.cpu_seconds + times.user + times.system
                    found[part] = Use(seconds, known.memory_mb + memory, known.processes + 1)
        return dict(found)

    def _programs(self, settings: Mapping[str, str]) -> list[Program]:
        ports = self.state.ports
        real = programs(self.home, self.state)
        rollout = real["rollout"]
        variables = {f"SQLCLIMB_{name.upper()}": value for name, value in settings.items()}
        rollout = replace(rollout, environment=rollout.environment | variables)
        engine = [word for name, value in self._engine.items() for word in (f"--{name}", value)]
        return [
            real["postgres"],
            real["ray"],
            stub("author", ports["author"], "--tasks", str(self._tasks)),
            stub("verifier", ports["verifier"]),
            replace(stub("engine", ports["inference"], *engine), name="inference"),
            rollout,
        ]

    def _migrate(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                migrate(self.dsn)
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    async def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        async with self.client() as client:
            while True:
                with contextlib.suppress(ServiceUnreachable):
                    if (await client.readiness()).ready:
                        return
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the rollout service is not ready: see {self.home.logs / 'rollout.log'}")
                await asyncio.sleep(0.2)


def stub(name: str, port: int, *options: str) -> Program:
    """A stub as a supervised program."""
    return Program(name, [sys.executable, "-m", f"benchmarks.support.stub_{name}", "--port", str(port), *options])


def part_of(process: psutil.Process) -> str:
    """Which of `PARTS` a process belongs to; `other` when to none."""
    try:
        text = " ".join(process.cmdline())
    except psutil.Error:
        return "other"
    return next((part for mark, part in PARTS.items() if mark in text), "other")


@contextlib.contextmanager
def stub_stack(folder: Path, tasks: int, engine: Mapping[str, str] | None = None) -> Iterator[StubStack]:
    """A stack that is not yet up, and is down afterwards."""
    stack = StubStack(folder, tasks, engine or {})
    try:
        yield stack
    finally:
        stack.down()
