"""`sample`, `report`, `band`, `delta`: measuring a policy."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, command, say
from cli.curve import draw_reports
from cli.follow import follow, patiently
from cli.render import delta_table, report_csv, report_markdown, report_table
from cli.stack.stack import StackError
from shared.contracts.measuring import BandRequest, DeltaRequest
from shared.contracts.rollout import Purpose, Regime, Sampling, SamplingParameters, SamplingRequest, SamplingState
from shared.contracts.tasks import Split
from shared.contracts.verifier import Profile
from shared.ids import sha256_hex

ENDED = (SamplingState.DONE, SamplingState.CANCELLED, SamplingState.FAILED)


@command
async def sample(
    domain: Annotated[str, typer.Argument(help="domain whose tasks are sampled")],
    policy: Annotated[str, typer.Option(help="`base` or RUN@STEP")] = "base",
    k: Annotated[int, typer.Option("-k", help="samples per task")] = 4,
    split: Annotated[Split, typer.Option()] = Split.HOLDOUT,
    fold: Annotated[int | None, typer.Option(help="only this half (0 or 1) of the split")] = None,
    limit: Annotated[int | None, typer.Option(help="at most this many tasks, a seeded draw")] = None,
    temperature: Annotated[float, typer.Option()] = 0.7,
    top_p: Annotated[float, typer.Option()] = 0.95,
    max_tokens: Annotated[int | None, typer.Option(help="reply budget; default from the model's card")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    purpose: Annotated[
        Purpose, typer.Option(help="`evaluation`, or `band` for prompts to train on")
    ] = Purpose.EVALUATION,
    prompt: Annotated[str | None, typer.Option(help="`full` or `question`; default from the model's card")] = None,
    profile: Annotated[Profile, typer.Option(help="comparison rule of the verdicts")] = Profile.STANDARD,
    sampling_id: Annotated[str | None, typer.Option("--id", help="the same id again resumes")] = None,
) -> None:
    """Sample and verify K replies a task. Rows are kept as they land; the same command again continues."""
    connection = Connection()
    model = connection.model()
    regime = model.regime if prompt is None else Regime.model_validate(model.regime.model_dump() | {"prompt": prompt})
    parameters = SamplingParameters(
        k=k, temperature=temperature, top_p=top_p, max_tokens=max_tokens or model.max_tokens, seed=seed
    )
    request = SamplingRequest(
        sampling_id=sampling_id or "pending",
        purpose=purpose,
        domain=domain,
        policy=policy,
        regime=regime,
        parameters=parameters,
        profile=profile,
        split=split,
        fold=fold,
        limit=limit,
    )
    if sampling_id is None:
        digest = sha256_hex(request.model_dump_json())[:8]
        request = request.model_copy(update={"sampling_id": f"{domain}-{policy}-{digest}"})
    async with connection.rollout() as client:
        await patiently(lambda: client.start(request))
        name = request.sampling_id
        done = await follow(lambda: client.sampling(name), lambda found: found.state in ENDED, _line)
        say(f"sampling {name}: {done.state}, {_line(done)}")
        if done.state != SamplingState.DONE:
            raise StackError(f"sampling {name} is {done.state}: {done.error}; rows that landed are kept")


def _line(found: Sampling) -> str:
    progress = found.progress
    lost = ", ".join(f"{reason} {count}" for reason, count in sorted(progress.lost.items())) or "none"
    eta = "" if progress.eta_seconds is None else f", ETA {progress.eta_seconds:.0f} s"
    why = f" ({found.error})" if found.error else ""
    return (
        f"{found.state}{why}: {progress.landed}/{progress.wanted} landed, re-rolled {progress.rerolled}, lost {lost}, "
        f"{progress.rows_per_second:.1f} rows/s, {progress.tokens_per_second:.0f} tokens/s{eta}"
    )


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
) -> None:
    """Cut the prompts worth training on: raw pass rate from LOW to HIGH."""
    async with Connection().rollout() as client:
        found = await client.cut_band(
            BandRequest(band_id=band_id or f"{sampling}-band", sampling_id=sampling, low=low, high=high)
        )
    say(
        f"band {found.band_id}: {len(found.task_ids)} of {found.considered} tasks in [{found.low}, {found.high}]; "
        f"{found.below} below, {found.above} above; cut on {found.policy}"
    )


@command
async def delta(
    before: Annotated[list[str], typer.Option(help="sampling id, or a policy; again for each repeat")],
    after: Annotated[list[str], typer.Option(help="sampling id, or a policy; again for each repeat")],
    json: Annotated[Path | None, typer.Option(help="write the delta here as JSON")] = None,
) -> None:
    """The paired difference of two samplings of the same tasks, with its interval and verdict.

    A policy (`base`, RUN@STEP) stands for its newest evaluation. Repeats of a side are pooled, and compared one by one.
    """
    async with Connection().rollout() as client:
        found = await client.delta(DeltaRequest(before=before, after=after))
    delta_table(found)
    if json is not None:
        json.write_text(found.model_dump_json(indent=1))
