"""`domain …`: bundles."""

from typing import Annotated

import typer

from cli.commands.domain_check import check, list_domains
from cli.commands.domain_init import init
from cli.commands.variants import variants
from cli.context import Connection, say
from shared.contracts.rollout import Regime
from shared.domain import find_bundle, system_prompt

app = typer.Typer(help="Domain bundles: a schema, its seeds and notes.", no_args_is_help=True)
app.command()(init)
app.command("list")(list_domains)
app.command()(check)
app.command()(variants)


@app.command()
def prompt(
    name: str,
    style: Annotated[str, typer.Option(help="`full` or `question`")] = "full",
) -> None:
    """The system prompt of a domain, as every policy gets it."""
    bundle = find_bundle(name, Connection().domain_folders())
    say(system_prompt(bundle, Regime.model_validate({"prompt": style})))
