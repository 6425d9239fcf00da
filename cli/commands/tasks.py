"""`tasks …`: import, export, list, review and audit tasks."""

import getpass
import json
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, UsageError, command, say
from cli.follow import follow
from cli.render import console, plain_table
from cli.review import decide_all, interview, show_item
from cli.stack.stack import StackError
from cli.task_files import Format, read_tasks, write_tasks
from shared.contracts.author import Authoring, AuthoringState
from shared.contracts.review import Action, AuditRequest, AuditSample, Decision
from shared.contracts.tasks import Archetype, ImportedTask, ImportRequest, RejectedTask, Split
from shared.contracts.verifier import Status
from shared.ids import sha256_hex, split_of, task_id

app = typer.Typer(help="Tasks: bring your own, take them elsewhere, look at them.", no_args_is_help=True)

ROWS_NAMED = 12
"""Rows of a file that a table of reasons names."""


class SplitRule(StrEnum):
    """Which side of the line an imported task falls on."""

    GOLD = "gold"  # by its gold's parse tree, as authored tasks
    ID_HASH = "id-hash"  # by its id: the published recipe's rule
    KEEP = "keep"  # as the file says


@app.command("import")
@command
async def import_(
    file: Annotated[Path, typer.Argument(help="JSON lines (own, recipe, defog), Parquet, or a `datasets` folder")],
    domain: Annotated[str, typer.Option(help="domain whose gates they pass; `sqlclimb domain init` makes one")],
    split: Annotated[SplitRule, typer.Option(help="which side of the line a task falls on")] = SplitRule.GOLD,
    database: Annotated[str | None, typer.Option(help="which rows of a defog file; default: the domain's name")] = None,
    add: Annotated[bool, typer.Option(help="keep the domain's current tasks and add to them")] = False,
    rejected: Annotated[Path | None, typer.Option(help="write every rejected row here as JSON lines")] = None,
    authoring_id: Annotated[str | None, typer.Option("--id", help="the same id again resumes")] = None,
) -> None:
    """Put tasks of a file through the gates; what passes is the domain's task set. Says why the rest is none."""
    rows = read_tasks(file, database or domain)
    numbers = [number for number, _ in rows]
    tasks = [_with_split(task, split) for _, task in rows]
    name = authoring_id or f"{domain}-import-{sha256_hex(file.name + ''.join(t.model_dump_json() for t in tasks))[:8]}"
    async with Connection().author() as client:
        await client.start_import(ImportRequest(authoring_id=name, domain=domain, tasks=tasks, add=add))
        done = await follow(lambda: client.authoring(name), lambda found: found.state != AuthoringState.RUNNING, _line)
        if done.state != AuthoringState.DONE or done.result is None:
            raise StackError(f"import {name} is {done.state}: {done.error}")
        found = (await client.rejections(name)).rejected
        tasks_now = (await client.tasks(domain)).tasks
    result = done.result
    say(f"import {name}: kept {result.kept} tasks over {result.golds} golds of {len(tasks)} rows")
    say(f"  holdout {result.holdout_tasks} tasks over {result.holdout_golds} golds; set {done.task_set_digest[:12]}")
    edits = Counter(
        edit for task in tasks_now if task.provenance.authoring_id == name for edit in task.provenance.edits
    )
    for edit, count in edits.most_common():
        say(f"  {edit} in {count} kept tasks")
    _print_reasons([one for one in found if one.position >= 0], numbers)
    if rejected is not None:
        lines = [{"row": numbers[one.position], **one.model_dump()} for one in found if one.position >= 0]
        rejected.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _with_split(task: ImportedTask, rule: SplitRule) -> ImportedTask:
    if rule is SplitRule.KEEP and task.split is None:
        raise UsageError(f"--split keep: the task {task.question[:60]!r} names no split; choose gold or id-hash")
    kept = {
        SplitRule.GOLD: None,
        SplitRule.ID_HASH: split_of(task_id(task.question)),
        SplitRule.KEEP: task.split,
    }
    return task.model_copy(update={"split": kept[rule]})


def _line(found: Authoring) -> str:
    return f"{found.proposed} judged, {found.kept} passed so far"


def _print_reasons(found: list[RejectedTask], numbers: list[int]) -> None:
    """The table of rejections: reason, count, meaning, rows of the file."""
    if not found:
        say("  no row was rejected")
        return
    table = plain_table("reason", "rows", "means", "rows of the file")
    counts = Counter(one.reason for one in found)
    for reason, count in counts.most_common():
        of_reason = [one for one in found if one.reason == reason]
        named = [str(numbers[one.position]) for one in of_reason[:ROWS_NAMED]]
        more = [] if count <= ROWS_NAMED else ["…"]
        table.add_row(reason, str(count), of_reason[0].meaning, ", ".join(named + more))
    console().print(table)


@app.command()
@command
async def export(
    domain: str,
    to: Annotated[Path, typer.Option(help="file or, for `datasets`, folder to make")],
    form: Annotated[Format, typer.Option("--format", help="how to write them")] = Format.JSONL,
    split: Annotated[Split | None, typer.Option(help="only this side of the line")] = None,
    with_privileged: Annotated[bool, typer.Option(help="golds too: they must reach no prompt")] = False,
) -> None:
    """Write a domain's current tasks to a file. Golds only with --with-privileged."""
    async with Connection().author() as client:
        found = await client.tasks(domain, split, privileged=with_privileged)
    write_tasks(to, form, found.tasks, with_privileged)
    golds = "with their golds" if with_privileged else "without golds"
    say(f"{to}: {len(found.tasks)} tasks of {domain} {golds}, set {found.digest[:12]}")


@app.command("list")
@command
async def list_(
    domain: str,
    split: Annotated[Split | None, typer.Option()] = None,
    archetype: Annotated[Archetype | None, typer.Option()] = None,
    limit: Annotated[int, typer.Option(min=1)] = 20,
) -> None:
    """The current tasks, without golds."""
    async with Connection().author() as client:
        found = await client.tasks(domain, split)
    tasks = [task for task in found.tasks if archetype in (None, task.archetype)]
    table = plain_table("id", "split", "archetype", "difficulty", "question")
    for task in tasks[:limit]:
        table.add_row(task.id, task.split, task.archetype, task.difficulty, task.question)
    console().print(table)
    say(f"{min(limit, len(tasks))} of {len(tasks)} tasks of {domain}, set {found.digest[:12]}")


@app.command()
@command
async def review(
    domain: str,
    reason: Annotated[str | None, typer.Option(help="only questions with this reason")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 20,
    show: Annotated[bool, typer.Option(help="print what waits and ask nothing")] = False,
    accept: Annotated[list[str] | None, typer.Option(help="task id; may be given again")] = None,
    reject: Annotated[list[str] | None, typer.Option(help="task id; may be given again")] = None,
    edit: Annotated[str | None, typer.Option(help="task id, with --gold or --question")] = None,
    gold: Annotated[list[str] | None, typer.Option(help="with --edit: the new gold; again for further ones")] = None,
    question: Annotated[str | None, typer.Option(help="with --edit: the new question")] = None,
    force: Annotated[bool, typer.Option(help="with --edit: in spite of a gate that reads its meaning")] = False,
    by: Annotated[str | None, typer.Option(help="who decides; default: the user's name here")] = None,
    note: Annotated[str, typer.Option(help="why")] = "",
) -> None:
    """Look at questions that a gate stopped by reading their meaning: accept, reject or edit. Shows golds."""
    who = by or getpass.getuser()
    if edit is None and (gold or question or force):
        raise UsageError("--gold, --question and --force belong to --edit TASK_ID")
    decisions = [
        *(Decision(task_id=one, action=Action.ACCEPT, decided_by=who, note=note) for one in accept or []),
        *(Decision(task_id=one, action=Action.REJECT, decided_by=who, note=note) for one in reject or []),
    ]
    if edit is not None:
        edited = {"question": question, "golds": gold or None, "force": force, "note": note}
        decisions.append(Decision.model_validate({"task_id": edit, "action": Action.EDIT, "decided_by": who, **edited}))
    async with Connection().author() as client:
        if decisions:
            if not await decide_all(client, domain, decisions):
                raise typer.Exit(1)
            return
        queue = await client.review(domain, reason, limit=limit)
        say(f"{domain}: {queue.waiting} questions wait for a decision; {len(queue.items)} shown")
        if show:
            for item in queue.items:
                show_item(item)
        elif queue.items:
            await interview(client, domain, queue.items, who)


@app.command()
@command
async def audit(
    sampling: Annotated[str, typer.Argument(help="sampling of a strong policy, several samples a task")],
    agreement: Annotated[float, typer.Option(help="share of a task's samples that must agree")] = 0.75,
    limit: Annotated[int, typer.Option(min=1, help="suspects to print")] = 20,
) -> None:
    """Tasks whose samples agree with each other and not with the gold: the gold may be wrong. Shows golds."""
    connection = Connection()
    async with connection.rollout() as rollout:
        domain = (await rollout.sampling(sampling)).request.domain
        samples = [
            AuditSample(task_id=row.task_id, sql=row.sql, matches=row.status is Status.MATCH)
            async for row in rollout.rows(sampling)
            if row.sql is not None and row.status is not Status.UNSCORABLE
        ]
    if not samples:
        raise UsageError(f"sampling {sampling!r} holds no sample with SQL")
    async with connection.author() as author:
        found = await author.audit(domain, AuditRequest(samples=samples, agreement=agreement))
    say(
        f"{sampling}: {len(found.suspects)} of {found.audited} audited tasks of {domain} have a suspect gold"
        f" ({100 * found.share:.1f} %)"
    )
    for suspect in found.suspects[:limit]:
        say(f"\n{suspect.task_id}  {suspect.agreeing} of {suspect.samples} samples agree")
        say(f"  question  {suspect.question}")
        for text in suspect.golds:
            say(f"  gold      {text}")
        say(f"  they say  {suspect.answer}")
