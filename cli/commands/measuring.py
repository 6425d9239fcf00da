"""`report`, `band`, `delta`, `void`: what was measured."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, command, say, say_note
from cli.render import delta_table, flip_table, report_csv, report_markdown, report_table
from cli.stack.stack import StackError
from cli.verify_view import replay_view
from shared.clients.rollout import RolloutClient
from shared.contracts.measuring import BandRequest, DeltaRequest, Flip
from shared.contracts.rollout import Purpose, Sampling, SamplingState


class ReportFormat(StrEnum):
    """How a report is printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"  # one report a line


@command
async def report(
    samplings: Annotated[
        list[str] | None, typer.Argument(help="sampling ids; none: every finished evaluation, oldest first")
    ] = None,
    form: Annotated[ReportFormat, typer.Option("--format")] = ReportFormat.TEXT,
    png: Annotated[Path | None, typer.Option(help="draw pass@1 with its interval over the samplings here")] = None,
) -> None:
    """One table over samplings: pass@1 with its interval, pass@k, pass^k, headroom, failures, by slice."""
    async with Connection().rollout() as client:
        listed = [] if samplings else reversed((await client.samplings()).samplings)
        names = samplings or [found.sampling_id for found in listed if _shown(found)]
        if not names:
            raise StackError("there is no finished evaluation: `sqlclimb sample DOMAIN` makes one")
        reports = [await client.report(name) for name in names]
    if form is ReportFormat.TEXT:
        report_table(reports)
    elif form is ReportFormat.MARKDOWN:
        say(report_markdown(reports).rstrip())
    elif form is ReportFormat.CSV:
        say(report_csv(reports).rstrip())
    else:
        say("\n".join(found.model_dump_json() for found in reports))
    if png is not None:
        from cli.curve import draw_reports  # matplotlib takes most of a second to import

        draw_reports(reports, png)


def _shown(found: Sampling) -> bool:
    done = found.state == SamplingState.DONE and found.void_reason is None
    return done and found.request.purpose == Purpose.EVALUATION


@command
async def void(
    sampling: Annotated[str, typer.Argument(help="sampling id")],
    reason: Annotated[str, typer.Option(help="why it must not count")],
) -> None:
    """Withdraw a sampling: its rows stay, no report, band or delta uses it any more."""
    async with Connection().rollout() as client:
        found = await client.void(sampling, reason)
    say(f"sampling {found.sampling_id} is withdrawn: {found.void_reason}")


@command
async def band(
    sampling: Annotated[str, typer.Argument(help="sampling of train tasks")],
    low: Annotated[float, typer.Option()] = 0.1,
    high: Annotated[float, typer.Option()] = 0.9,
    band_id: Annotated[str | None, typer.Option("--id")] = None,
    for_policy: Annotated[
        str, typer.Option("--for", help="the policy to be trained on it: `base` or RUN@STEP")
    ] = "base",
) -> None:
    """Cut the prompts worth training on: raw pass rate from LOW to HIGH."""
    request = BandRequest(
        band_id=band_id or f"{sampling}-band", sampling_id=sampling, low=low, high=high, for_policy=for_policy
    )
    async with Connection().rollout() as client:
        found = await client.cut_band(request)
    say(
        f"band {found.band_id}: {len(found.task_ids)} of {found.considered} tasks in [{found.low}, {found.high}]; "
        f"{found.below} below, {found.above} above; cut on {found.policy}"
    )
    if found.previous is not None:
        say(
            f"{found.shared} of them were in the domain's last band too ({found.previous}, {found.previous_size} tasks)"
        )
    for warning in found.warnings:
        say_note(warning)


@command
async def delta(
    before: Annotated[list[str], typer.Option(help="sampling id, or a policy; again for each repeat")],
    after: Annotated[list[str], typer.Option(help="sampling id, or a policy; again for each repeat")],
    domain: Annotated[str | None, typer.Option(help="where a policy's newest evaluation is looked for")] = None,
    json: Annotated[Path | None, typer.Option(help="write the delta here as JSON")] = None,
    explain: Annotated[
        int, typer.Option(help="of so many tasks that flipped either way, show both results; needs the `gold` scope")
    ] = 0,
) -> None:
    """The paired difference of two samplings of the same tasks, with its interval and verdict.

    A policy (`base`, RUN@STEP) stands for its newest evaluation. Repeats of a side are pooled, and compared one by one.
    """
    async with Connection().rollout() as client:
        found = await client.delta(DeltaRequest(before=before, after=after, domain=domain))
        delta_table(found)
        flip_table(found)
        if json is not None:
            json.write_text(found.model_dump_json(indent=1))
        gained = [flip for flip in found.flips if flip.after > flip.before]
        lost = [flip for flip in found.flips if flip.after < flip.before]
        for flip in (*gained[:explain], *lost[:explain]):
            await _explain(client, flip)


async def _explain(client: RolloutClient, flip: Flip) -> None:
    say(f"\n{flip.task_id}: pass rate {flip.before:.2f} before, {flip.after:.2f} after")
    if flip.row_id is None:
        say("every scored reply of the worse side passed: nothing to explain")
    else:
        replay_view(await client.replay(flip.row_id))
