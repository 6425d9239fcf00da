"""`rows …`: single verdicts looked at again, and rows taken elsewhere."""

import asyncio
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, UsageError, command, say, say_note
from cli.render import console, plain_table
from cli.row_files import RowFormat, write_rows
from cli.stack.stack import StackError
from cli.verify_view import replay_view
from shared.clients.rollout import RolloutClient
from shared.contracts.rollout import Sampling, SamplingRequest, SamplingState
from shared.contracts.tasks import Split
from shared.whileai import to_whileai

app = typer.Typer(help="Single rows of a sampling, for people.", no_args_is_help=True)


@app.command()
@command
async def replay(
    row: Annotated[int, typer.Argument(help="row id, as `rows scan` and the rows endpoint give it")],
) -> None:
    """Verify one row's reply again, and show both results and the first difference. Needs the `gold` scope."""
    async with Connection().rollout() as client:
        found = await client.replay(row)
    replay_view(found)


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


class PushTarget(StrEnum):
    """Where rows can be sent."""

    WHILEAI = "whileai"  # a dataset of the While account that WHILEAI_API_KEY names


@app.command()
@command
async def export(
    sampling: Annotated[str, typer.Argument(help="sampling id")],
    form: Annotated[RowFormat, typer.Option("--format", help="of the file")] = RowFormat.JSONL,
    out: Annotated[Path | None, typer.Option(help="default: SAMPLING with the format's suffix, here")] = None,
    push: Annotated[PushTarget | None, typer.Option(help="send them there; a file only with --out")] = None,
    name: Annotated[str | None, typer.Option(help="of the pushed dataset; default: the sampling id")] = None,
) -> None:
    """Write every row that has landed, or push them. Golds are in none of it."""
    async with Connection().rollout() as client:
        found = await client.sampling(sampling)
        if found.void_reason is not None:
            raise UsageError(f"sampling {sampling} was withdrawn: {found.void_reason}")
        _warn(found)
        if push is None or out is not None:
            path = out or Path(f"{sampling}{form.suffix}")
            count = await write_rows(path, form, client.rows(sampling), found.request)
            say(f"{path}: {count} rows")
        if push is PushTarget.WHILEAI:
            await _push_to_whileai(client, found, name or sampling)


def _warn(found: Sampling) -> None:
    request = found.request
    if request.task_ids is None and request.split is Split.HOLDOUT:
        say_note("holdout tasks: measure with these rows, never train on them")
    if request.endpoint is not None:
        say_note("a model elsewhere gives no token ids and no log-probabilities: nothing can be trained on them")
    if found.state is not SamplingState.DONE:
        say_note(f"the sampling is {found.state}: {found.progress.landed} of {found.progress.wanted} rows")


def _purpose(request: SamplingRequest) -> str:
    """What a pushed dataset is for: tasks that were named one by one may be of either split, so never training."""
    if request.task_ids is not None:
        return "eval"
    return "holdout" if request.split is Split.HOLDOUT else "train"


async def _push_to_whileai(client: RolloutClient, found: Sampling, name: str) -> None:
    try:
        from shared.whileai.push import KEY_VARIABLE, PushError, push
    except ImportError as error:
        raise UsageError("--push whileai needs the SDK: `pip install 'sqlclimb[whileai]'`") from error
    if not (key := os.environ.get(KEY_VARIABLE, "").strip()):
        raise UsageError(f"--push whileai: set {KEY_VARIABLE} to a key of your While account")
    rows = [to_whileai(row, found.request) async for row in client.rows(found.sampling_id)]
    if not rows:
        raise UsageError(f"sampling {found.sampling_id} has no rows yet")
    try:
        dataset = await asyncio.to_thread(push, rows, name, key, _purpose(found.request))
    except PushError as error:
        raise StackError(f"whileai took nothing: {error}") from error
    say(f"{len(rows)} rows are whileai dataset {dataset} ({name})")
