"""`up`, `down`, `status`: the local stack."""

from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, command, say
from cli.render import console, plain_table
from cli.stack.home import StackHome
from cli.stack.stack import Stack, remote_status, status_json

Services = Annotated[list[str] | None, typer.Argument(help="services to start, with what they need; default all")]


def up(
    services: Services = None,
    model: Annotated[Path | None, typer.Option(help="base model to serve: a Hugging Face folder")] = None,
) -> None:
    """Start the local stack (or only SERVICES) and wait until it is ready. Again: starts what is missing."""
    stack = Stack(StackHome.from_environment(), say)
    stack.up(services or [], model)
    say(f"token: {stack.home.token_file}")


def down() -> None:
    """Stop the local stack; nothing of it is left running. Data stays in SQLCLIMB_HOME."""
    stack = Stack(StackHome.from_environment(), say)
    leftovers = stack.down()
    suffix = f"; ended {leftovers} leftover processes" if leftovers else ""
    say(f"stopped; {stack.leftovers()} processes left{suffix}")


@command
async def status(json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False) -> None:
    """What runs, where, and in which version, as each service says itself: here, or where SQLCLIMB_*_URL point."""
    connection = Connection()
    home, remote = connection.home, connection.remote_urls()
    found = await (remote_status(remote) if remote else Stack(home, say).status())
    if json:
        say(status_json(home, found))
        return
    if not found:
        say(f"nothing runs in {home.folder}; `sqlclimb up` starts it")
        return
    table = plain_table("part", "state", "url", "versions")
    for name, part in found.items():
        table.add_row(name, part.state, part.url, ", ".join(f"{key} {value}" for key, value in part.versions.items()))
    console().print(table)
