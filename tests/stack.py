"""A running local stack, driven as a user drives it: by the `sqlclimb` command."""

import json
import os
import subprocess
import sys
from pathlib import Path

from cli.stack.home import HOME_VARIABLE, StackHome
from shared.auth import read_token
from tests.prometheus import Prometheus

DEMO_SECONDS = 600
CLI_SECONDS = 300


class StackHandle:
    """One stack in a folder of its own."""

    domain = "shop"

    def __init__(self, home: Path) -> None:
        self.home = home
        self.demo_output = ""
        """What `demo --smoke` printed."""
        self.prometheus: Prometheus | None = None
        """What scraped it from before the demo on, where Prometheus is installed."""

    @property
    def urls(self) -> dict[str, str]:
        """Service name to address."""
        services = json.loads(self.cli("status", "--json").stdout)["services"]
        return {name: part["url"] for name, part in services.items()}

    def token(self, name: str) -> str:
        """The secret of a named token (`admin`, `author`, `rollout`, `trainer`)."""
        return read_token(StackHome(self.home).tokens_file, name)

    def start(self) -> None:
        """Run the smoke demo and leave its stack up."""
        done = self.cli("demo", "--smoke", "--keep", seconds=DEMO_SECONDS, check=False)
        self.demo_output = done.stdout
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}\n{self._log_tails()}"

    def stop(self) -> None:
        """Bring it down."""
        self.cli("down")

    def cli(self, *words: str, seconds: int = CLI_SECONDS, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run `sqlclimb WORDS…` against this stack."""
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *words],
            env=os.environ | {HOME_VARIABLE: str(self.home)},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert not check or done.returncode == 0, f"sqlclimb {words}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done

    def _log_tails(self) -> str:
        logs = sorted((self.home / "logs").glob("*.log"))
        return "\n".join(f"== {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)
