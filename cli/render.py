"""Tables for people."""

import csv
import io

from rich.console import Console
from rich.table import Table

from shared.contracts.measuring import Delta, DeltaVerdict, Estimate, Report, ReportLine

WIDTH = 240
"""Columns of a table that is piped into a file."""


def console() -> Console:
    """A console that does not wrap tables when piped, and prints questions and SQL as they stand."""
    found = Console(markup=False, emoji=False)
    return found if found.is_terminal else Console(markup=False, emoji=False, width=WIDTH)


def plain_table(*titles: str) -> Table:
    """A table without borders whose cells stay on one line."""
    table = Table(box=None, padding=(0, 1))
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def interval(estimate: Estimate, signed: bool = False) -> str:
    """`0.561 [0.530, 0.592]`."""
    form = "+.3f" if signed else ".3f"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


REPORT_TITLES = (
    *("sampling", "policy", "slice", "tasks", "pass@1 [95 %]", "pass@k", "pass^k", "headroom", "wrong", "no SQL"),
    *("error", "by SQLSTATE class", "refused", "timeout", "cut", "thought", "distinct", "tokens", "seconds"),
    *("short", "if failed", "unscorable", "detectable"),
)


def report_cells(reports: list[Report]) -> list[tuple[str, ...]]:
    """A row for each sampling's overall line and for each of its slices."""
    return [
        (
            found.sampling_id,
            f"{found.policy} k={found.k}",
            line.slice,
            str(line.tasks),
            interval(line.pass_at_1),
            f"{line.pass_at_k.value:.3f}",
            f"{line.pass_hat_k.value:.3f}",
            f"{line.headroom:.3f}",
            *(f"{share:.3f}" for share in (line.mismatch, line.no_sql, line.sql_error)),
            _classes(line),
            *(f"{share:.3f}" for share in (line.refused, line.timeout, line.cut, line.thought, line.distinct)),
            f"{line.median_tokens:.0f}",
            f"{line.median_sample_ms / 1000:.1f}",
            str(line.short_tasks),
            f"{line.pass_at_1_short_failed:.3f}",
            str(line.unscorable),
            f"±{line.detectable_effect:.3f}",
        )
        for found in reports
        for line in found.lines
    ]


def _classes(line: ReportLine) -> str:
    return " ".join(f"{name}:{share:.3f}" for name, share in line.sql_error_classes.items()) or "-"


def report_table(reports: list[Report]) -> None:
    """Each sampling's overall line, then its slices by difficulty, archetype and style."""
    table = plain_table(*REPORT_TITLES)
    named = None
    for sampling, policy, *rest in report_cells(reports):
        table.add_row(*(("", "") if sampling == named else (sampling, policy)), *rest)
        named = sampling
    console().print(table)


def report_markdown(reports: list[Report]) -> str:
    """The same table for a pull request or a wiki."""
    lines = [REPORT_TITLES, ("---",) * len(REPORT_TITLES), *report_cells(reports)]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


def report_csv(reports: list[Report]) -> str:
    """One line a slice with every figure of the contract; intervals as three columns."""
    text = io.StringIO()
    records = [_flat(found, line) for found in reports for line in found.lines]
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _flat(found: Report, line: ReportLine) -> dict[str, object]:
    flat: dict[str, object] = {"sampling": found.sampling_id, "policy": found.policy, "k": found.k}
    for name, value in line:
        if isinstance(value, Estimate):
            flat |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        elif name == "sql_error_classes":
            flat[name] = _classes(line)
        else:
            flat[name] = value
    return flat


def delta_table(found: Delta) -> None:
    """The paired lines, the verdict and the sentence."""
    table = plain_table("slice", "metric", "tasks", "before", "after", "delta [95 %]", "p")
    for line in found.lines:
        table.add_row(
            line.slice,
            line.metric,
            str(line.tasks),
            f"{line.before:.3f}",
            f"{line.after:.3f}",
            interval(line.delta, signed=True),
            f"{line.p_value:.4f}",
        )
    out = console()
    before, after = ", ".join(found.before), ", ".join(found.after)
    out.print(f"delta {found.before_policy} ({before}) -> {found.after_policy} ({after})")
    out.print(table)
    for difference in found.differences:
        out.print(f"  differs: {difference}")
    times = f" x{found.repeats_alone}" if found.verdict is DeltaVerdict.MOVED_REPLICATED else ""
    out.print(
        f"verdict: {found.verdict}{times}. {found.sentence} (smallest detectable effect ±{found.detectable_effect:.3f})"
    )


FLIPS_SHOWN = 10
"""Each way; the JSON has all."""


def flip_table(found: Delta) -> None:
    """Tasks whose pass rate changed by half or more, both ways."""
    gained = [flip for flip in found.flips if flip.after > flip.before]
    lost = [flip for flip in found.flips if flip.after < flip.before]
    table = plain_table("", "task", "before", "after", "question")
    for word, flips in (("gained", gained), ("lost", lost)):
        for flip in flips[:FLIPS_SHOWN]:
            table.add_row(word, flip.task_id, f"{flip.before:.2f}", f"{flip.after:.2f}", flip.question)
    out = console()
    out.print(f"flipped: {len(gained)} gained, {len(lost)} lost")
    if found.flips:
        out.print(table)
