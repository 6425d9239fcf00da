"""`domain init`: a bundle from a SQL file or a live database."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, UsageError, say
from shared.bundles.check import personal_columns
from shared.bundles.files import worth_saying
from shared.bundles.from_dsn import Wanted, bundle_from_database
from shared.bundles.from_sql import read_sql_file, write_bundle
from shared.bundles.live_connection import given_dsn
from shared.bundles.live_sample import Bounds
from shared.bundles.personal import Finding
from shared.domain import load_bundle, table_names

LINES_SHOWN = 40


def init(
    name: Annotated[str, typer.Argument(help="name of the new domain")],
    from_sql: Annotated[Path | None, typer.Option(help="plain SQL file: schema and rows, as pg_dump writes it")] = None,
    from_dsn: Annotated[
        str | None,
        typer.Option(
            help="a live PostgreSQL 12 or newer, only read: `env:NAME` (a variable that holds the string), "
            "`service=NAME`, or postgresql://user@host/database. Keep the password out of the command line: use env:, "
            "PGPASSWORD, ~/.pgpass or a service file. It gets into no child's arguments, no file and no message"
        ),
    ] = None,
    schema: Annotated[
        list[str] | None, typer.Option(help="only this schema of the database; may be given again")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="table to leave out; may be given again")] = None,
    rows: Annotated[int, typer.Option(min=2, help="rows taken of one table, at most")] = 200,
    total_rows: Annotated[int, typer.Option(min=10, help="rows taken in all, at most")] = 5000,
    seed: Annotated[int, typer.Option(help="another seed takes other rows")] = 0,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="table.column that looks personal and is taken as it is; may be given again"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="seconds one statement may run on the database")] = 30.0,
) -> None:
    """Make a bundle: from a plain SQL file, or from a live database's schema and a sample of its rows.

    Of a live database, columns that look personal are listed and masked unless --allow names them.
    """
    if (from_sql is None) == (from_dsn is None):
        raise UsageError("give exactly one of --from-sql and --from-dsn")
    folder = Connection().domain_folders()[0] / name
    if from_sql is not None:
        if not from_sql.is_file():
            raise UsageError(f"--from-sql: {from_sql} is no file")
        dropped = write_bundle(name, read_sql_file(from_sql), folder).dropped
        _say_list("left out, a read-only copy has no use for it", worth_saying(dropped))
        _say_list("looks personal, kept as the file has it", finding_lines(personal_columns(load_bundle(folder))))
    elif from_dsn is not None:
        wanted = Wanted(Bounds(rows, total_rows, seed), schema or (), exclude or (), allow or (), timeout)
        made = bundle_from_database(name, given_dsn(from_dsn), wanted, folder)
        _say_list("masked, for it looks personal (--allow TABLE.COLUMN takes it as it is)", finding_lines(made.masked))
        _say_list("looks personal and is allowed", finding_lines(made.allowed))
        _say_list("of the sample", made.notes)
        say(f"{sum(made.rows.values())} rows of {len(made.rows)} tables")
    bundle = load_bundle(folder)
    say(
        f"{folder}: {len(table_names(bundle))} tables, digest {bundle.digest[:12]}; next: edit notes.md, then "
        f"`sqlclimb domain check {name}`"
    )


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """For people, one a column."""
    return [f"{found.column}: {found.kind}, told by its {found.by}" for found in findings]


def _say_list(what: str, lines: Sequence[str]) -> None:
    if lines:
        say(f"{what} ({len(lines)}):")
        for line in lines[:LINES_SHOWN]:
            say(f"  {line}")
        if len(lines) > LINES_SHOWN:
            say(f"  … and {len(lines) - LINES_SHOWN} more, see README.md of the bundle")
