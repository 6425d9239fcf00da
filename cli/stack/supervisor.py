"""supervisord for one stack: its configuration, its start, and calls over its socket."""

import configparser
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from cli.stack.home import STACK_VARIABLE, StackHome
from cli.stack.programs import Program

START_SECONDS = 20
SHUTDOWN_SECONDS = 60
"""All programs' ends together."""


class SupervisorUnavailable(RuntimeError):
    """supervisord does not answer."""


class SupervisorRefused(RuntimeError):
    """supervisord answers with a fault, e.g. while it shuts down."""


@dataclass(frozen=True)
class Supervised:
    """A program as supervisord sees it."""

    pid: int
    """0 when no process runs."""

    state: str
    """RUNNING, BACKOFF, FATAL, …"""


class Supervisor:
    """One stack's supervisord."""

    def __init__(self, home: StackHome) -> None:
        self._home = home
        self._socket = home.short_folder / "supervisor.sock"
        self._configuration = home.folder / "supervisord.conf"

    def is_running(self) -> bool:
        """Whether it answers; while it shuts down it still does."""
        try:
            self._call("getState")
        except SupervisorRefused:
            return True
        except SupervisorUnavailable:
            return False
        return True

    def configure(self, programs: Iterable[Program]) -> None:
        """Write the configuration."""
        with self._configuration.open("w") as file:
            configuration(self._home, self._socket, programs).write(file)

    def start(self, environment: dict[str, str]) -> None:
        """Start supervisord if it is not up. It leaves the caller (a daemon), so that `up` may return.

        Programs inherit `environment`, which holds the database's password: it is in no file and no argv.
        """
        if self.is_running():
            return
        self._socket.unlink(missing_ok=True)
        with (self._home.logs / "supervisord.out").open("a") as output:
            subprocess.run(
                [sys.executable, "-m", "supervisor.supervisord", "-c", str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,  # what follows sees whether it answers
                env=environment
                | {
                    "PATH": os.environ.get("PATH", os.defpath),
                    "HOME": str(self._home.folder),
                    STACK_VARIABLE: str(self._home.folder),
                },
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.is_running():
            if time.monotonic() > deadline:
                raise SupervisorUnavailable(f"supervisord did not start: see {self._home.logs / 'supervisord.out'}")
            time.sleep(0.05)

    def apply(self, names: Iterable[str]) -> None:
        """Take up the written configuration, then start `names` (those that run are left alone)."""
        added, changed, removed = self._call("reloadConfig")[0]
        for name in [*changed, *removed]:
            self._call("stopProcessGroup", name)
            self._call("removeProcessGroup", name)
        for name in [*added, *changed]:
            self._call("addProcessGroup", name)
        states = self.states()
        for name in names:
            if states.get(name) not in ("RUNNING", "STARTING", "BACKOFF"):
                self._call("startProcess", name, False)

    def processes(self) -> dict[str, Supervised]:
        """Every configured program by name; empty when supervisord is down. Raises SupervisorRefused."""
        try:
            found = self._call("getAllProcessInfo")
        except SupervisorUnavailable:
            return {}
        return {str(info["name"]): Supervised(int(info["pid"]), str(info["statename"])) for info in found}

    def states(self) -> dict[str, str]:
        """Program name to supervisord's state; empty when it is down. Raises SupervisorRefused."""
        return {name: program.state for name, program in self.processes().items()}

    def shutdown(self) -> None:
        """Stop every program and supervisord itself; returns when it is gone."""
        with contextlib.suppress(SupervisorUnavailable, SupervisorRefused):
            self._call("shutdown")
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        while self.is_running() and time.monotonic() < deadline:
            time.sleep(0.1)

    def _call(self, method: str, *arguments: object) -> Any:
        proxy = ServerProxy("http://localhost", transport=SupervisorTransport(serverurl=f"unix://{self._socket}"))
        try:
            return getattr(proxy.supervisor, method)(*arguments)
        except Fault as fault:
            raise SupervisorRefused(f"supervisord {method}{arguments}: {fault.faultString}") from fault
        except (OSError, ConnectionError) as error:
            raise SupervisorUnavailable(str(error)) from error
        finally:
            proxy("close")()


def configuration(home: StackHome, socket: Path, programs: Iterable[Program]) -> configparser.RawConfigParser:
    """supervisord's configuration: every program restarts when it ends, and stops with its whole group."""
    config = configparser.RawConfigParser()
    config["unix_http_server"] = {"file": str(socket), "chmod": "0700"}
    config["supervisord"] = {
        "logfile": str(home.logs / "supervisord.log"),
        "pidfile": str(home.folder / "supervisord.pid"),
        "childlogdir": str(home.logs),
        "directory": str(home.folder),
    }
    config["rpcinterface:supervisor"] = {
        "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
    }
    for program in programs:
        config[f"program:{program.name}"] = {
            "command": " ".join(_escape(word) for word in program.argv),
            "environment": _environment(program.environment),
            "stdout_logfile": str(home.logs / f"{program.name}.log"),
            "redirect_stderr": "true",
            "autostart": "false",
            "autorestart": "true",
            "startsecs": "2",
            "startretries": "8",
            "stopsignal": program.stop_signal,
            "stopwaitsecs": str(program.stop_seconds),
            "stopasgroup": "true",
            "killasgroup": "true",
        }
    return config


def _environment(variables: dict[str, str]) -> str:
    return ",".join(f"{name}='{_escape(value)}'" for name, value in sorted(variables.items()))


def _escape(text: str) -> str:
    """supervisord expands `%(…)s`; in single quotes it takes all but the quote itself. Raises ValueError for one."""
    if "'" in text:
        raise ValueError(f"{text!r} holds a quote, which supervisord cannot carry: choose another path")
    return text.replace("%", "%%")
