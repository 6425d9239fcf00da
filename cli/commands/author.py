"""`author`: have a teacher write tasks."""

import asyncio
import re
from typing import Annotated

import typer

from cli.context import Connection, command, say
from cli.follow import follow
from cli.stack.stack import StackError
from shared.contracts.author import Authoring, AuthoringRequest, AuthoringState, AuthoringYield, Spending
from shared.contracts.tasks import Archetype

THIN_SHOWN = 8
"""Cells named as what to author next."""

MODEL_GOLDS = 200
GRAMMAR_GOLDS = 3200
"""Golds proposed by default: a model's cost money."""


@command
async def author(
    domain: Annotated[str, typer.Argument(help="domain to write tasks for")],
    teacher: Annotated[str, typer.Option(help="who writes: `grammar`, `anthropic` or `openai`")] = "grammar",
    model: Annotated[str | None, typer.Option(help="the teacher's model; else the author's setting")] = None,
    golds: Annotated[
        int | None, typer.Option(help=f"golds to propose  [default: {GRAMMAR_GOLDS}; with a model {MODEL_GOLDS}]")
    ] = None,
    phrasings: Annotated[int, typer.Option(help="questions per gold")] = 3,
    seed: Annotated[int, typer.Option()] = 0,
    style: Annotated[list[str] | None, typer.Option(help="ask in this style only; may be given again")] = None,
    only: Annotated[list[Archetype] | None, typer.Option(help="only this archetype; may be given again")] = None,
    from_report: Annotated[
        str | None, typer.Option(help="aim at the archetypes that the policy of this sampling fails")
    ] = None,
    add: Annotated[
        bool | None,
        typer.Option(
            "--add/--replace",
            help="add to the domain's tasks, or make a new set  [default: add with --only or --from-report]",
        ),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(help="stop before spending more, in USD")] = None,
    per_call: Annotated[int, typer.Option(help="proposals a call of the model")] = 8,
    concurrency: Annotated[int, typer.Option(help="calls of the model at a time")] = 4,
    max_tokens: Annotated[int, typer.Option(help="reply budget of a call in tokens, thinking included")] = 16_000,
    second_opinions: Annotated[int, typer.Option(help="independent attempts of a model at each question; 0: none")] = 1,
    authoring_id: Annotated[str | None, typer.Option("--id", help="the same id again resumes")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="stop the authoring of this id instead")] = False,
) -> None:
    """Write tasks: questions with exact golds, through the gates. The same command again continues."""
    wanted = golds or (GRAMMAR_GOLDS if teacher == "grammar" else MODEL_GOLDS)
    aimed = [*(only or []), *([from_report] if from_report else [])]
    writer = [teacher, *([re.sub(r"[^A-Za-z0-9._-]", "-", model)] if model else [])]
    name = authoring_id or "-".join([domain, *writer, f"{wanted}x{phrasings}", str(seed), *aimed])
    async with Connection().author() as client:
        if cancel:
            found = await client.cancel(name)
            say(f"authoring {name}: {found.state}. {_line(found)}")
            return
        begun = await client.start(
            AuthoringRequest(
                authoring_id=name,
                domain=domain,
                teacher=teacher,
                model=model,
                seed=seed,
                golds=wanted,
                phrasings=phrasings,
                styles=style or [],
                only=only or [],
                from_report=from_report,
                add=bool(aimed) if add is None else add,
                per_call=per_call,
                max_tokens=max_tokens,
                second_opinions=second_opinions,
                concurrency=concurrency,
                max_cost_usd=max_cost,
            )
        )
        if begun.state == AuthoringState.DONE:
            say(f"authoring {name} was done before; another --seed or --id writes other tasks")
        try:
            done = await follow(
                lambda: client.authoring(name), lambda found: found.state != AuthoringState.RUNNING, _line
            )
        except asyncio.CancelledError:
            say(
                f"\nauthoring {name} goes on in the author service; the same command follows it, with --cancel stops it"
            )
            raise
    _report(name, done)


def _report(name: str, done: Authoring) -> None:
    """The yield. Raises StackError for one that is not done."""
    if done.result is not None:
        _print_yield(name, done, done.result)
    if done.state != AuthoringState.DONE:
        raise StackError(f"authoring {name} {done.state}: {done.error}")


def _line(found: Authoring) -> str:
    parts = [f"{found.proposed} proposed, {found.kept} kept"]
    if found.rejected:
        most = sorted(found.rejected.items(), key=lambda entry: -entry[1])
        parts.append(", ".join(f"{reason} {count}" for reason, count in most))
    if found.spending is not None:
        parts.append(_spent(found.spending))
    if found.eta_seconds is not None:
        parts.append(f"ETA {found.eta_seconds:.0f} s")
    return "; ".join(parts)


def _spent(found: Spending) -> str:
    read = found.input_tokens + found.cache_read_tokens + found.cache_write_tokens
    cost = "cost unknown" if found.cost_usd is None else f"${found.cost_usd:.4f}"
    text = f"{sum(found.calls.values())} calls, {read} tokens in, {found.output_tokens} out, {cost}"
    if found.doubts:
        text += f" (and at most ${found.doubt_usd:.4f} for {found.doubts} calls cut off by a kill)"
    return text


def _print_yield(name: str, done: Authoring, result: AuthoringYield) -> None:
    say(f"authoring {name}: kept {result.kept} tasks over {result.golds} golds of {result.proposed} proposed")
    if result.carried:
        say(f"  added to {result.carried} tasks that were there")
    say(
        f"  holdout {result.holdout_tasks} tasks over {result.holdout_golds} golds: detects a change of "
        f"{result.detectable_effect:.3f} in pass@1 (80 % power, k 4)"
    )
    say(f"  task set {done.task_set_digest[:12]}")
    if done.spending is not None:
        calls = ", ".join(f"{outcome} {count}" for outcome, count in sorted(done.spending.calls.items()))
        say(f"  {done.model}: {_spent(done.spending)} ({calls})")
    if result.rejected:
        say("  rejected: " + ", ".join(f"{reason} {count}" for reason, count in sorted(result.rejected.items())))
    for archetype, levels in sorted(result.matrix.items()):
        say(f"  {archetype:<16} " + "  ".join(f"{level} {count}" for level, count in sorted(levels.items())))
    for archetype, needed in result.absent.items():
        say(f"  {archetype:<16} none: takes {needed}")
    if result.thin:
        shown = ", ".join(f"{cell.archetype}/{cell.difficulty} {cell.tasks}" for cell in result.thin[:THIN_SHOWN])
        possible = [cell.archetype for cell in result.thin if cell.archetype not in result.absent]
        archetypes = list(dict.fromkeys(possible))[:3]
        say(f"  thin: {shown}; next: `sqlclimb author {done.domain} {' '.join(f'--only {one}' for one in archetypes)}`")
