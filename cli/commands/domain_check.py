"""`domain check` and `domain list`: what stands of a bundle."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.domain_init import finding_lines
from cli.context import FAILED, Connection, UsageError, command, say
from cli.render import console, plain_table
from cli.stack.stack import StackError
from shared.bundles.check import (
    clock_use,
    missing_notes,
    personal_columns,
    prompt_length,
    tables_without_key,
)
from shared.bundles.notes import table_columns
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.verifier import VerifierClient
from shared.contracts.rollout import Regime
from shared.contracts.verifier import ExplainRequest, Sandbox, SandboxRequest
from shared.domain import Bundle, BundleError, find_bundle, load_bundle, system_prompt, table_names
from shared.seed_rows import rows_of
from shared.sql import identifier

BROKEN_SHOWN = 20


@command
async def check(
    name: str,
    model: Annotated[
        Path | None, typer.Option(help="folder of a model: the prompt is counted by its tokenizer.json, else estimated")
    ] = None,
) -> None:
    """Load the bundle in a sandbox; say what it holds, what it lacks, which tasks no longer hold.

    Exit code 1 where it does not load, a column looks personal and is neither masked nor reviewed, or tasks no longer
    hold. What is merely missing is said and is no failure.
    """
    connection = Connection()
    bundle = find_bundle(name, connection.domain_folders())
    async with connection.verifier() as verifier:
        sandbox, counts = await _load(verifier, name, bundle)
    _say_contents(name, bundle, sandbox, counts, model)
    _say_lines("missing in notes.md", missing_notes(bundle))
    _say_lines("tables without rows", [table for table, count in counts.items() if count == "0"])
    _say_lines("tables without a key", tables_without_key(bundle.schema_sql))
    _say_lines("rows depend on the clock or on chance (their golds change by the day)", clock_use(bundle))
    personal = finding_lines(personal_columns(bundle))
    _say_lines(
        "LOOKS PERSONAL: mask it (`domain init --from-dsn` does), or name it under reviewed_columns in domain.toml",
        personal,
    )
    broken = await _broken_tasks(connection, name)
    if personal or broken:
        raise typer.Exit(FAILED)


async def _load(verifier: VerifierClient, name: str, bundle: Bundle) -> tuple[Sandbox, dict[str, str]]:
    """A sandbox of the bundle (gone again) and its main seed's rows by table."""
    tables = table_names(bundle)
    each = (f"(SELECT count(*) FROM {'.'.join(map(identifier, table.split('.')))})" for table in tables)
    sandbox = await verifier.create_sandbox(SandboxRequest(run_id=f"check-{name}", domain=name))
    try:
        counts = "SELECT " + ", ".join(each)
        found = await verifier.explain(sandbox.sandbox_id, ExplainRequest(gold=counts, sql=counts))
    finally:
        await verifier.delete_sandbox(sandbox.sandbox_id)
    if found.gold.error is not None or not found.gold.rows:
        raise StackError(f"{name} loads, but its rows cannot be counted: {found.gold.error}")
    return sandbox, {table: str(count) for table, count in zip(tables, found.gold.rows[0], strict=True)}


def _say_contents(name: str, bundle: Bundle, sandbox: Sandbox, counts: dict[str, str], model: Path | None) -> None:
    say(f"{name}: digest {bundle.digest[:12]}, PostgreSQL {sandbox.postgres}, seeds {', '.join(sandbox.seeds)} load")
    total = sum(int(count) for count in counts.values())
    say(f"  {len(counts)} tables, {total} rows on main: {', '.join(f'{table} {n}' for table, n in counts.items())}")
    prompt = system_prompt(bundle, Regime())
    try:
        length = prompt_length(prompt, model)
    except FileNotFoundError as error:
        raise UsageError(f"--model: {error} is no file: give the folder that holds the model's tokenizer") from error
    say(f"  prompt {length.tokens} tokens ({length.by}), {len(prompt)} characters")


def _say_lines(what: str, lines: list[str]) -> None:
    if lines:
        say(f"  {what}:")
        for line in lines:
            say(f"    {line}")


async def _broken_tasks(connection: Connection, name: str) -> bool:
    """Say which current tasks no longer hold; whether there are any."""
    try:
        async with connection.author() as author:
            found = await author.check(name)
    except ServiceProblem as problem:
        if problem.problem.status != 404:  # no task was written for it yet
            raise
        say("  no tasks yet")
        return False
    except (ServiceUnreachable, StackError):
        say("  tasks not checked: no author runs (`sqlclimb up author`)")
        return False
    say(f"  {found.tasks} tasks, {len(found.broken)} no longer hold")
    for task in found.broken[:BROKEN_SHOWN]:
        say(f"    {task.task_id} {task.reason}: {task.question}")
    return bool(found.broken)


@command
async def list_domains() -> None:
    """The domains found: tables, rows, tasks, variants, digest, folder."""
    connection = Connection()
    table = plain_table("domain", "tables", "rows", "tasks", "variants", "digest", "folder")
    for folder in connection.domain_folders():
        for file in sorted(folder.glob("*/domain.toml")):
            name = file.parent.name
            try:
                bundle = load_bundle(file.parent)
            except BundleError as error:
                table.add_row(name, "", "", "", "", "", str(error))
                continue
            columns = table_columns(bundle.schema_sql)
            rows = rows_of(bundle.seed_sql, {found: dict.fromkeys(names, True) for found, names in columns.items()})
            table.add_row(
                name,
                str(len(table_names(bundle))),
                str(sum(map(len, rows.values()))),
                await _task_count(connection, name),
                ", ".join(bundle.variants) or "-",
                bundle.digest[:12],
                str(file.parent),
            )
    console().print(table)


async def _task_count(connection: Connection, name: str) -> str:
    """`-` where there are none, `?` where no author can be asked."""
    try:
        async with connection.author() as author:
            return str(len((await author.tasks(name)).tasks))
    except ServiceProblem as problem:
        return "-" if problem.problem.status == 404 else "?"
    except (ServiceUnreachable, StackError):
        return "?"
