"""`policy build`: a small policy for a laptop."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection
from cli.stack.stack import StackError

app = typer.Typer(help="Small policies, made on this machine.", no_args_is_help=True)


@app.command()
def build(
    domain: Annotated[str, typer.Argument(help="domain whose train tasks (one half) it starts from")],
    out: Annotated[Path | None, typer.Option(help="folder of policies; default SQLCLIMB_HOME/policies")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    maximum_steps: Annotated[
        int | None, typer.Option(help="stop after this many optimizer steps at the latest")
    ] = None,
) -> None:
    """Train a small Qwen3 until it answers a middle share of unseen train questions. Cached by what made it.

    The last line printed is JSON with its path.
    """
    connection = Connection()
    folder = out or connection.home.folder / "policies"
    argv = [sys.executable, "-m", "services.trainer.small_policy", "--domain", domain, "--out", str(folder)]
    argv += ["--seed", str(seed)]
    if maximum_steps is not None:
        argv += ["--maximum-steps", str(maximum_steps)]
    done = subprocess.run(argv, env=os.environ | connection.service_environment(), check=False)
    if done.returncode != 0:
        raise StackError(f"policy build ended with exit code {done.returncode}; its own words are above")
