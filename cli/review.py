"""Review at the terminal: a question with its gold, rows and reason; a decision by a key."""

from collections.abc import Sequence

import typer
from pydantic import ValidationError

from cli.context import say
from cli.render import console, plain_table
from shared.clients.author import AuthorClient
from shared.contracts.review import Action, Decision, DecisionsRequest, ReviewItem

ROWS_SHOWN = 8
KEYS = {"a": Action.ACCEPT, "r": Action.REJECT, "e": Action.EDIT}


def show_item(item: ReviewItem) -> None:
    """Everything that helps to decide."""
    say(f"\n{item.task_id}  {item.reason or 'a task'}: {item.meaning or 'passes every gate'}")
    say(f"  question  {item.question}")
    for gold in item.golds:
        say(f"  gold      {gold}")
    if item.columns:
        say(f"  asked for {', '.join(item.columns)}")
    if item.decision is not None:
        say(f"  decided   {item.decision.action} by {item.decision.decided_by} on {item.decision.decided_at:%Y-%m-%d}")
    if item.rows is not None and item.rows.error is None:
        table = plain_table(*item.rows.columns)
        for row in item.rows.rows[:ROWS_SHOWN]:
            table.add_row(*("NULL" if value is None else value for value in row))
        console().print(table)
        say(f"  {item.rows.row_count} rows")


async def decide_all(client: AuthorClient, domain: str, decisions: Sequence[Decision]) -> bool:
    """Send them and say what became of each; whether all were stored."""
    done = await client.decide(domain, DecisionsRequest(decisions=list(decisions)))
    for decision, result in zip(decisions, done.results, strict=True):
        if result.stored:
            say(f"{result.task_id}: {decision.action} stored")
        else:
            say(f"{result.task_id}: {decision.action} not stored: {result.reason}, {result.meaning}")
    say(f"{domain} has {done.tasks} tasks now, set {done.task_set_digest[:12]}")
    return all(result.stored for result in done.results)


async def interview(client: AuthorClient, domain: str, items: Sequence[ReviewItem], who: str) -> None:
    """Ask about each item. Every answer is stored at once; the set is made anew at the end, however that comes."""
    decided = 0
    try:
        for item in items:
            show_item(item)
            decision = _asked(item, who)
            if decision is None:
                break
            if isinstance(decision, Decision):
                request = DecisionsRequest(decisions=[decision], publish=False)
                [result] = (await client.decide(domain, request)).results
                decided += result.stored
                said = "stored" if result.stored else f"not stored: {result.reason}, {result.meaning}"
                say(f"  {decision.action} {said}")
    finally:
        if decided:
            done = await client.decide(domain, DecisionsRequest())
            say(f"{decided} decisions; {domain} has {done.tasks} tasks now, set {done.task_set_digest[:12]}")


class Skipped:
    """The person passes on."""


def _asked(item: ReviewItem, who: str) -> Decision | Skipped | None:
    """A decision, Skipped, or None to stop."""
    while True:
        key = typer.prompt("  [a]ccept [r]eject [e]dit [s]kip [q]uit", default="s").strip().lower()[:1]
        if key == "q":
            return None
        if key not in KEYS:
            return Skipped()
        changes: dict[str, object] = {}
        if KEYS[key] is Action.EDIT:
            changes = _changes(item)
        try:
            return Decision.model_validate(
                {"task_id": item.task_id, "action": KEYS[key], "decided_by": who, "note": "", **changes}
            )
        except ValidationError as error:
            say(f"  {error.errors()[0]['msg']}")


def _changes(item: ReviewItem) -> dict[str, object]:
    """What an edit changes; an empty answer keeps the text."""
    question = typer.prompt("  question", default=item.question)
    gold = typer.prompt("  gold", default=item.golds[0])
    changes: dict[str, object] = {}
    if question != item.question:
        changes["question"] = question
    if gold != item.golds[0]:
        changes["golds"] = [gold, *item.golds[1:]]
    return changes
