"""`rows …`: single verdicts looked at again."""

from typing import Annotated

import typer

from cli.context import Connection, command, say
from cli.render import console, plain_table

app = typer.Typer(help="Single rows of a sampling, for people.", no_args_is_help=True)


@app.command()
@command
async def replay(
    row: Annotated[int, typer.Argument(help="row id, as `rows scan` and the rows endpoint give it")],
) -> None:
    """Verify one row's reply again, and show both results and the first difference. Needs the `gold` scope."""
    async with Connection().rollout() as client:
        found = await client.replay(row)
    say(f"row {found.row_id} of sampling {found.sampling_id}, task {found.task_id}: {found.question}")
    again = "again" if found.verdict.status == found.recorded else "NOW"
    say(f"recorded {found.recorded}, {again} {found.verdict.status}: {found.verdict.reason}")
    say(f"sql: {found.verdict.sql}")
    if found.explanation is not None:
        say(f"difference: {found.explanation.difference}")
        for name, result in (("gold", found.explanation.gold), ("candidate", found.explanation.candidate)):
            table = plain_table(*result.columns)
            for values in result.rows:
                table.add_row(*("NULL" if value is None else value for value in values))
            say(f"{name}: {result.row_count} rows{'' if result.error is None else f', {result.error}'}")
            console().print(table)


@app.command()
@command
async def scan(sampling: Annotated[str, typer.Argument(help="sampling id")]) -> None:
    """Look through rewarded replies for reward hacking: constants, volatile calls, one statement for many golds."""
    async with Connection().rollout() as client:
        found = await client.scan(sampling)
    table = plain_table("row", "task", "kind", "detail", "sql")
    for finding in found.findings:
        table.add_row(str(finding.row_id), finding.task_id, finding.kind, finding.detail, " ".join(finding.sql.split()))
    if found.findings:
        console().print(table)
    say(f"sampling {sampling}: {len(found.findings)} findings in {found.rewarded} rewarded rows")
