"""`author`: have a teacher write tasks."""

from typing import Annotated

import typer

from cli.context import Connection, command, say
from cli.follow import follow
from cli.stack.stack import StackError
from shared.contracts.author import Authoring, AuthoringRequest, AuthoringState, AuthoringYield


@command
async def author(
    domain: Annotated[str, typer.Argument(help="domain to write tasks for")],
    teacher: Annotated[str, typer.Option(help="who writes")] = "grammar",
    golds: Annotated[int, typer.Option(help="distinct gold queries to propose")] = 3200,
    phrasings: Annotated[int, typer.Option(help="questions per gold")] = 3,
    seed: Annotated[int, typer.Option()] = 0,
    authoring_id: Annotated[str | None, typer.Option("--id", help="the same id again resumes")] = None,
) -> None:
    """Write tasks: questions with exact golds, through the gates. The same command again continues."""
    name = authoring_id or f"{domain}-{teacher}-{golds}x{phrasings}-{seed}"
    request = AuthoringRequest(
        authoring_id=name, domain=domain, teacher=teacher, golds=golds, phrasings=phrasings, seed=seed
    )
    async with Connection().author() as client:
        await client.start(request)
        done = await follow(lambda: client.authoring(name), lambda found: found.state != AuthoringState.RUNNING, _line)
    if done.state == AuthoringState.FAILED or done.result is None:
        raise StackError(f"authoring {name} failed: {done.error}")
    _print_yield(name, done, done.result)


def _line(found: Authoring) -> str:
    return f"{found.proposed} proposed, {found.kept} kept"


def _print_yield(name: str, done: Authoring, result: AuthoringYield) -> None:
    say(f"authoring {name}: kept {result.kept} tasks over {result.golds} golds of {result.proposed} proposed")
    say(f"  holdout {result.holdout_tasks} tasks over {result.holdout_golds} golds")
    say(f"  task set {done.task_set_digest[:12]}")
    if result.rejected:
        say("  rejected: " + ", ".join(f"{reason} {count}" for reason, count in sorted(result.rejected.items())))
    for archetype, levels in sorted(result.matrix.items()):
        say(f"  {archetype:<16} " + "  ".join(f"{level} {count}" for level, count in sorted(levels.items())))
