"""Tables for people."""

from rich.console import Console
from rich.table import Table

from shared.contracts.rollout import Delta, DeltaVerdict, Estimate, Report

WIDTH = 200
"""Columns of a table that is piped into a file."""


def console() -> Console:
    """A console that does not wrap tables when piped."""
    found = Console()
    return found if found.is_terminal else Console(width=WIDTH)


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


def report_table(reports: list[Report]) -> None:
    """Each sampling's overall line, then its slices by difficulty, archetype and style."""
    table = plain_table(
        *("sampling", "policy", "slice", "tasks", "pass@1 [95 %]", "pass@k", "pass^k", "headroom"),
        *("wrong", "no SQL", "error", "cut", "unscorable", "detectable"),
    )
    for found in reports:
        for line in found.lines:
            overall = line.slice == "all"
            table.add_row(
                found.sampling_id if overall else "",
                f"{found.policy} k={found.k}" if overall else "",
                line.slice,
                str(line.tasks),
                interval(line.pass_at_1),
                f"{line.pass_at_k.value:.3f}",
                f"{line.pass_hat_k.value:.3f}",
                f"{line.headroom:.3f}",
                f"{line.mismatch:.3f}",
                f"{line.no_sql:.3f}",
                f"{line.sql_error:.3f}",
                f"{line.cut:.3f}",
                str(line.unscorable),
                f"±{line.detectable_effect:.3f}",
            )
    console().print(table)


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
