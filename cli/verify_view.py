"""Verdicts and explanations for people."""

from collections import Counter

from rich.text import Text

from cli.render import console, plain_table
from cli.verify_lines import NumberedItem
from shared.contracts.measuring import Replay
from shared.contracts.verifier import Explanation, ResultPreview, Status, Verdict


def verdict_table(rows: list[tuple[NumberedItem, Verdict]]) -> None:
    """A line an item."""
    table = plain_table("item", "status", "reward", "rows", "gold rows", "reason")
    for numbered, verdict in rows:
        reward = "null" if verdict.reward is None else f"{verdict.reward:.1f}"
        counts = ("" if count is None else str(count) for count in (verdict.rows, verdict.gold_rows))
        table.add_row(*map(Text, (numbered.label, verdict.status, reward, *counts, verdict.reason)))
    console().print(table)


def summary(statuses: Counter[Status], faults: int) -> str:
    """`3 of 5 match; mismatch 1, unscorable 1; 1 faulty line`."""
    parts = [f"{statuses[Status.MATCH]} of {statuses.total()} match"]
    others = ", ".join(f"{status} {count}" for status, count in statuses.items() if status is not Status.MATCH)
    parts += [others] if others else []
    parts += [f"{faults} faulty line{'s' if faults > 1 else ''}"] if faults else []
    return "; ".join(parts)


def explanation_view(numbered: NumberedItem, verdict: Verdict, found: Explanation) -> None:
    """The first difference, then both results as they are on the seed where it lies."""
    console().print(f"\n{numbered.label}: {verdict.status}: {found.difference}", highlight=False)
    _both_results(found)


def replay_view(found: Replay) -> None:
    """A recorded verdict taken again, with both results and the first difference."""
    out = console()
    again = "again" if found.verdict.status == found.recorded else "NOW"
    out.print(f"row {found.row_id} of {found.sampling_id}, task {found.task_id}: {found.question}", highlight=False)
    out.print(f"recorded {found.recorded}, {again} {found.verdict.status}: {found.verdict.reason}", highlight=False)
    out.print(f"sql: {found.verdict.sql}", highlight=False)
    if found.explanation is not None:
        out.print(f"difference: {found.explanation.difference}", highlight=False)
        _both_results(found.explanation)


def _both_results(found: Explanation) -> None:
    out = console()
    out.print(f"on seed {found.seed}, the gold:", highlight=False)
    _result(found.gold)
    out.print("the candidate:", highlight=False)
    _result(found.candidate)


def _result(preview: ResultPreview) -> None:
    out = console()
    if preview.error is not None:
        out.print(f"  {preview.error}", highlight=False)
        return
    table = plain_table(*preview.columns)
    for row in preview.rows:
        table.add_row(*(Text("NULL" if value is None else value) for value in row))
    out.print(table)
    hidden = preview.row_count - len(preview.rows)
    out.print(f"  {preview.row_count} rows" + (f", the last {hidden} not shown" if hidden else ""), highlight=False)
