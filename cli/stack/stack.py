"""Up, down and status of the local stack."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
from pydantic import ValidationError

from cli.stack.home import ServedModel, StackHome, StackState, free_ports, is_taken
from cli.stack.programs import (
    NEEDS,
    SERVICES,
    common_environment,
    database_dsn,
    programs,
    teacher_environment,
    with_needs,
)
from cli.stack.reaper import reap, stack_processes
from cli.stack.supervisor import Supervisor
from shared.contracts.base import Readiness
from shared.contracts.policy import PolicyCard
from shared.database import migrate
from shared.ids import sha256_hex

READY_SECONDS = 240.0
"""vLLM takes 25 to 40 s on an idle machine."""

NEEDS_MODEL = frozenset({"engine", "inference", "rollout", "trainer"})

Say = Callable[[str], None]


class StackError(RuntimeError):
    """The stack cannot do what was asked; the message says what to do."""


@dataclass(frozen=True)
class PartStatus:
    """One part of the stack."""

    url: str
    state: str
    """`ready`, `not ready: …`, or supervisord's word (STARTING, BACKOFF, FATAL, STOPPED)."""

    versions: dict[str, str]


class Stack:
    """The stack in one folder."""

    def __init__(self, home: StackHome, say: Say) -> None:
        self.home = home
        self._say = say
        self._supervisor = Supervisor(home)

    def up(self, parts: list[str], model: Path | None) -> None:
        """Start `parts` and all they need (all services when empty), and wait until they are ready. Idempotent."""
        state = self._prepare(model)
        wanted = with_needs(parts or [name for name in SERVICES if state.model or name not in NEEDS_MODEL])
        if state.model is None and NEEDS_MODEL.intersection(wanted):
            raise StackError(f"{', '.join(sorted(NEEDS_MODEL.intersection(wanted)))} needs a model: add --model FOLDER")
        self._supervisor.configure(programs(self.home, state).values())
        self._supervisor.start(common_environment(self.home, state) | teacher_environment(os.environ))
        self._say(f"starting {', '.join(wanted)} (logs in {self.home.logs})")
        if "postgres" in wanted:
            self._supervisor.apply(["postgres"])
            self._migrate(state)
        self._supervisor.apply(wanted)
        asyncio.run(self._wait_ready(state, [name for name in wanted if name in SERVICES]))

    def down(self) -> int:
        """Stop everything, also what a killed supervisor left behind. Returns how many leftovers were ended."""
        self._supervisor.shutdown()
        leftovers = reap(self.home)
        for folder in (self.home.short_folder, self.home.sandboxes):
            shutil.rmtree(folder, ignore_errors=True)
        return leftovers

    async def status(self) -> dict[str, PartStatus]:
        """Every part that has been started."""
        state = self.home.load()
        supervised = self._supervisor.states()
        if state is None or not supervised:
            return {}
        readiness = await asyncio.gather(*(self._readiness(state, name) for name in SERVICES))
        found = {}
        for name, ready in zip(SERVICES, readiness, strict=True):
            if name in supervised:
                found[name] = self._part(state, name, supervised[name], ready)
        for name in NEEDS:
            if name in supervised and name not in SERVICES:
                found[name] = PartStatus(self.home.url(state, _port_name(name)), supervised[name].lower(), {})
        return found

    def _prepare(self, model: Path | None) -> StackState:
        state = self.home.prepare()
        if model is not None:
            served = describe_model(model)
            if state.model is not None and state.model != served and self._supervisor.is_running():
                self._say(f"the stack serves {state.model.served_name}: switching to {served.served_name}")
            state = state.model_copy(update={"model": served})
        if not self._supervisor.is_running():
            left = reap(self.home)
            if left:
                self._say(f"ended {left} processes that a killed stack had left")
            self.home.prepare()
            taken = {name: port for name, port in state.ports.items() if is_taken(port)}
            fresh = dict(zip(taken, free_ports(len(taken)), strict=True))
            state = state.model_copy(update={"ports": state.ports | fresh})
        self.home.save(state)
        return state

    def _migrate(self, state: StackState) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                migrate(database_dsn(state))
                return
            except psycopg.OperationalError as error:
                if "authentication failed" in str(error):
                    data = self.home.folder / "control-database"
                    raise StackError(f"{data} was made under another {self.home.state_file}: restore it") from error
            self._check_alive(["postgres"])
            if time.monotonic() > deadline:
                raise StackError(f"the control database did not start: see {self.home.logs / 'postgres.log'}")
            time.sleep(0.2)

    async def _wait_ready(self, state: StackState, names: list[str]) -> None:
        started = time.monotonic()
        told = started
        waiting: dict[str, str] = dict.fromkeys(names, "starting")
        while waiting:
            results = await asyncio.gather(*(self._readiness(state, name) for name in waiting))
            for name, ready in zip(list(waiting), results, strict=True):
                if ready is not None and ready.ready:
                    del waiting[name]
                    known = ", ".join(f"{key} {value}" for key, value in ready.versions.items())
                    seconds = time.monotonic() - started
                    self._say(f"  {name:<10} ready after {seconds:5.1f} s at {self.home.url(state, name)}  {known}")
                elif ready is not None:
                    waiting[name] = "; ".join(f"{key}: {value}" for key, value in ready.checks.items() if value != "ok")
            self._check_alive(with_needs(names))
            if time.monotonic() - started > READY_SECONDS:
                reasons = "; ".join(f"{name} ({reason})" for name, reason in waiting.items())
                raise StackError(f"not ready after {READY_SECONDS:.0f} s: {reasons}. Logs: {self.home.logs}")
            if waiting and time.monotonic() - told > 10:
                told = time.monotonic()
                self._say(f"  waiting for {', '.join(f'{name} ({why})' for name, why in waiting.items())}")
            await asyncio.sleep(0.25)

    def _check_alive(self, names: list[str]) -> None:
        states = self._supervisor.states()
        fatal = [name for name in names if states.get(name) == "FATAL"]
        if fatal:
            log = self.home.logs / f"{fatal[0]}.log"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:]) if log.exists() else ""
            raise StackError(f"{fatal[0]} does not start; the end of {log}:\n{tail}")

    async def _readiness(self, state: StackState, name: str) -> Readiness | None:
        return await readiness_of(self.home.url(state, name))

    def _part(self, state: StackState, name: str, supervised: str, ready: Readiness | None) -> PartStatus:
        word = supervised.lower() if supervised != "RUNNING" else "starting"
        return part_status(self.home.url(state, name), ready, word)

    def leftovers(self) -> int:
        """How many processes of this stack run."""
        return len(stack_processes(self.home))


async def remote_status(urls: dict[str, str]) -> dict[str, PartStatus]:
    """What the services at these addresses say of themselves."""
    readiness = await asyncio.gather(*map(readiness_of, urls.values()))
    parts = zip(urls.items(), readiness, strict=True)
    return {name: part_status(url, ready, "gives no answer") for (name, url), ready in parts}


async def readiness_of(url: str) -> Readiness | None:
    """A service's `/readyz`; None when nothing of ours answers there."""
    try:
        async with httpx.AsyncClient(timeout=5.0) as client:
            return Readiness.model_validate_json((await client.get(f"{url}/readyz")).content)
    except (httpx.TransportError, httpx.InvalidURL, ValidationError):
        return None


def part_status(url: str, ready: Readiness | None, silent: str) -> PartStatus:
    """`silent`: its state when it does not answer."""
    if ready is None:
        return PartStatus(url, silent, {})
    faults = "; ".join(f"{check}: {result}" for check, result in ready.checks.items() if result != "ok")
    return PartStatus(url, f"not ready: {faults}" if faults else "ready", ready.versions)


def describe_model(path: Path) -> ServedModel:
    """A model folder's served name and how it is asked, from its card where it has one.

    Raises StackError when it is no model folder.
    """
    config = path / "config.json"
    if not config.exists():
        raise StackError(f"{path} is no model folder: it has no config.json (make one: `sqlclimb policy build`)")
    folder, card_file = path.resolve(), path / "policy.json"
    if not card_file.exists():
        identity = sha256_hex(f"{folder}{config.read_text()}")
        return ServedModel(path=str(folder), served_name=f"{folder.name[:40]}-{identity[:8]}")
    try:
        card = PolicyCard.model_validate_json(card_file.read_text())
    except ValidationError as error:
        raise StackError(f"{card_file} is faulty: {error}") from error
    return ServedModel(
        path=str(folder),
        served_name=f"{card.domain}-small-{card.digest[:8]}",
        regime=card.regime,
        max_tokens=card.max_tokens,
        context_tokens=card.context_tokens,
    )


def _port_name(part: str) -> str:
    return "ray_dashboard" if part == "ray" else part


def status_json(home: StackHome, found: dict[str, PartStatus]) -> str:
    """The document that lets any client attach (design section 10)."""
    services = {name: {"url": part.url, "state": part.state, "versions": part.versions} for name, part in found.items()}
    return json.dumps({"services": services, "token_file": str(home.token_file)}, indent=1)
