"""`verify`: verdicts for one reply, or for a JSONL file of them."""

import json
import sys
import uuid
from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, UsageError, command, say
from cli.render import console, plain_table
from shared.contracts.verifier import (
    ExplainRequest,
    SandboxRequest,
    Status,
    Verdict,
    VerifyItem,
    VerifyRequest,
)

ITEMS_PER_CALL = 512


@command
async def verify(
    domain: Annotated[str, typer.Argument(help="domain to run on")],
    reply: Annotated[str | None, typer.Option(help="a model's reply")] = None,
    sql: Annotated[str | None, typer.Option(help="a bare statement, in place of a reply")] = None,
    gold: Annotated[str | None, typer.Option(help="the gold query")] = None,
    file: Annotated[
        Path | None, typer.Option(help="JSON lines {reply|sql, gold, item_id?, order_matters?}; `-`: stdin")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines out")] = False,
    explain: Annotated[bool, typer.Option(help="with --sql: show both results and the first difference")] = False,
) -> None:
    """Compare replies with golds in a sandbox of their own. Exit 0 when all match, 1 otherwise."""
    items = _items(reply, sql, gold, file)
    async with Connection().verifier() as client:
        sandbox = await client.create_sandbox(SandboxRequest(run_id=f"cli-{uuid.uuid4().hex[:8]}", domain=domain))
        try:
            verdicts: list[Verdict] = []
            for start in range(0, len(items), ITEMS_PER_CALL):
                call = VerifyRequest(items=items[start : start + ITEMS_PER_CALL])
                verdicts += (await client.verify(sandbox.sandbox_id, call)).verdicts
            if explain and sql and gold:
                found = await client.explain(sandbox.sandbox_id, ExplainRequest(gold=gold, sql=sql))
                say(found.model_dump_json(indent=1))
        finally:
            await client.delete_sandbox(sandbox.sandbox_id)
    _show(verdicts, as_json)
    if any(verdict.status != Status.MATCH for verdict in verdicts):
        raise typer.Exit(1)


def _items(reply: str | None, sql: str | None, gold: str | None, file: Path | None) -> list[VerifyItem]:
    if file is None:
        if gold is None or (reply is None) == (sql is None):
            raise UsageError("give --gold and one of --reply and --sql, or --file")
        return [VerifyItem(reply=reply, sql=sql, gold=gold)]
    text = sys.stdin.read() if str(file) == "-" else file.read_text()
    items = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                items.append(VerifyItem.model_validate(json.loads(line)))
            except (json.JSONDecodeError, ValueError) as error:
                raise UsageError(f"--file line {number}: {error}") from error
    return items


def _show(verdicts: list[Verdict], as_json: bool) -> None:
    if as_json:
        for verdict in verdicts:
            say(verdict.model_dump_json())
        return
    table = plain_table("item", "status", "reward", "rows", "gold rows", "reason")
    for position, verdict in enumerate(verdicts):
        reward = "null" if verdict.reward is None else f"{verdict.reward:.1f}"
        cells = (verdict.item_id or str(position), verdict.status, reward, str(verdict.rows), str(verdict.gold_rows))
        table.add_row(*cells, verdict.reason)
    console().print(table)
    matched = sum(verdict.status == Status.MATCH for verdict in verdicts)
    say(f"{matched} of {len(verdicts)} match")
