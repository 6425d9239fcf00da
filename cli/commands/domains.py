"""`domain …`: bundles."""

from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, UsageError, command, say
from shared.bundle_from_sql import write_bundle
from shared.contracts.rollout import Regime
from shared.contracts.verifier import ExplainRequest, SandboxRequest
from shared.domain import find_bundle, load_bundle, system_prompt, table_names

app = typer.Typer(help="Domain bundles: a schema, its seeds and notes.", no_args_is_help=True)


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="name of the new domain")],
    from_sql: Annotated[Path, typer.Option(help="plain SQL file: schema and rows, as pg_dump writes it")],
) -> None:
    """Make a bundle from a plain SQL file."""
    if not from_sql.is_file():
        raise UsageError(f"--from-sql: {from_sql} is no file")
    folder = Connection().domain_folders()[0] / name
    write_bundle(name, from_sql.read_text(), folder)
    bundle = load_bundle(folder)
    say(
        f"{folder}: {len(table_names(bundle))} tables, digest {bundle.digest[:12]}; next: edit notes.md, then "
        f"`sqlclimb domain check {name}`"
    )


@app.command("list")
def list_() -> None:
    """The domains found, with their folders."""
    for folder in Connection().domain_folders():
        for file in sorted(folder.glob("*/domain.toml")):
            say(f"{file.parent.name:<20} {file.parent}")


@app.command()
@command
async def check(name: str) -> None:
    """Load the bundle in a sandbox and count its rows on every seed."""
    connection = Connection()
    bundle = find_bundle(name, connection.domain_folders())
    counts = "SELECT " + ", ".join(f'(SELECT count(*) FROM "{table}") AS "{table}"' for table in table_names(bundle))
    async with connection.verifier() as verifier:
        sandbox = await verifier.create_sandbox(SandboxRequest(run_id=f"check-{name}", domain=name))
        try:
            found = await verifier.explain(sandbox.sandbox_id, ExplainRequest(gold=counts, sql=counts))
        finally:
            await verifier.delete_sandbox(sandbox.sandbox_id)
    say(f"{name}: digest {bundle.digest[:12]}, PostgreSQL {sandbox.postgres}, seeds {', '.join(sandbox.seeds)} load")
    say(
        "  rows on main: "
        + ", ".join(f"{table} {count}" for table, count in zip(found.gold.columns, found.gold.rows[0], strict=True))
    )
    say(f"  prompt {len(system_prompt(bundle, Regime()))} characters; notes {'present' if bundle.notes else 'MISSING'}")


@app.command()
def prompt(
    name: str,
    style: Annotated[str, typer.Option(help="`full` or `brief`")] = "full",
) -> None:
    """The system prompt of a domain, as every policy gets it."""
    bundle = find_bundle(name, Connection().domain_folders())
    say(system_prompt(bundle, Regime.model_validate({"prompt": style})))
