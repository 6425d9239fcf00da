"""`train`, `runs`: training runs."""

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.context import Connection, UsageError, asked_as, command, say
from cli.follow import follow, patiently
from cli.render import console
from cli.run_view import (
    RECENT,
    attempt_line,
    curve_lines,
    drawings,
    event_line,
    plan_lines,
    run_json,
    run_line,
    run_table,
    step_line,
)
from cli.stack.stack import StackError
from cli.supervised_view import dry_run_lines
from shared.clients.trainer import TrainerClient
from shared.contracts.planning import DryRunRequest, PlanRequest
from shared.contracts.run_config import (
    GRPO_FIELDS,
    AdvantageScale,
    DataParallel,
    GuardAction,
    GuardName,
    Loss,
    Method,
    RewardSource,
    RunConfig,
    Schedule,
    SharedPrompt,
    Tracker,
)
from shared.contracts.trainer import Run, RunRequest, RunState
from shared.contracts.verifier import Profile

app = typer.Typer(help="Training runs.", no_args_is_help=True)

ENDED = (RunState.DONE, RunState.STOPPED, RunState.FAILED)


@command
async def train(
    domain: Annotated[str, typer.Argument()],
    run_id: Annotated[str, typer.Option("--run", help="run id; the same id again resumes")],
    band: Annotated[str | None, typer.Option(help="band id: the prompts that GRPO learns on")] = None,
    method: Annotated[Method, typer.Option(help="`sft`: learn right replies instead of rewards")] = Method.GRPO,
    from_sampling: Annotated[
        str | None, typer.Option(help="sft: the first right reply a task of this finished sampling of train tasks")
    ] = None,
    golds: Annotated[bool, typer.Option("--golds", help="sft: the train tasks' golds; needs the `gold` scope")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="sft: count what it would learn from")] = False,
    preset: Annotated[str | None, typer.Option(help="begin with its settings; `runs presets` lists them")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="say what the run needs and costs; start nothing")] = False,
    start_from: Annotated[str | None, typer.Option(help="`base` or `<run>@<step>`")] = None,
    steps: Annotated[int | None, typer.Option(help="default 40")] = None,
    prompts: Annotated[int | None, typer.Option(help="prompts per step, default 32")] = None,
    k: Annotated[int | None, typer.Option("-k", help="samples per prompt, default 16")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="default 2e-5, with sft 2e-4")] = None,
    schedule: Annotated[Schedule | None, typer.Option(help="of the learning rate, default constant")] = None,
    loss: Annotated[Loss | None, typer.Option(help="default dapo")] = None,
    shared_prompt: Annotated[
        SharedPrompt | None, typer.Option(help="forward a group's prompt once; default auto: where the model allows it")
    ] = None,
    advantages: Annotated[AdvantageScale | None, typer.Option(help="what divides a group's rewards")] = None,
    rank: Annotated[int | None, typer.Option(help="LoRA rank, default 16; alpha is twice that")] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    max_tokens: Annotated[int | None, typer.Option(help="reply budget; default from the model's card")] = None,
    prompt: Annotated[str | None, typer.Option(help="`full` or `question`; default from the model's card")] = None,
    run_ahead: Annotated[int | None, typer.Option(help="steps that generation runs ahead: 0 or 1, default 1")] = None,
    refills: Annotated[int | None, typer.Option(help="rounds that replace groups which teach nothing")] = None,
    eval_every: Annotated[int | None, typer.Option(help="score a checkpoint on the holdout every so often")] = None,
    eval_limit: Annotated[int | None, typer.Option(help="on at most this many holdout tasks")] = None,
    guard: Annotated[list[str] | None, typer.Option(help="NAME=stop|warn|off; may be repeated")] = None,
    workers: Annotated[int | None, typer.Option(help="training workers, default 1; a resume may take fewer")] = None,
    data_parallel: Annotated[
        DataParallel | None, typer.Option(help="how several workers hold the weights, default ddp: each holds all")
    ] = None,
    report_to: Annotated[
        list[Tracker] | None, typer.Option(help="a tracker that gets every step's figures; may be repeated")
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(help="attempts after one that died without a step between them, default 3")
    ] = None,
    profile: Annotated[Profile | None, typer.Option(help="comparison rule of the reward")] = None,
    rewards: Annotated[RewardSource | None, typer.Option(help="`shuffled` is a control")] = None,
) -> None:
    """Train a LoRA adapter with GRPO on a band's prompts, or with SFT, and follow the run. Ctrl-C leaves it running."""
    if dry_run and method is not Method.SFT:
        raise UsageError("--dry-run counts what --method sft learns from; --plan tells what a GRPO run needs")
    guards = read_guards(guard or [])
    connection = Connection()
    model = await connection.model()
    chosen = {
        "start_from": start_from,
        "steps": steps,
        "prompts_per_step": prompts,
        "k": k,
        "learning_rate": learning_rate,
        "schedule": schedule,
        "loss": loss,
        "shared_prompt": shared_prompt,
        "advantages": advantages,
        "lora": None if rank is None else {"rank": rank, "alpha": 2 * rank},
        "seed": seed,
        "max_tokens": max_tokens,
        "run_ahead": run_ahead,
        "refills": refills,
        "guards": guards or None,
        "workers": workers,
        "data_parallel": data_parallel,
        "report_to": report_to,
        "restarts": restarts,
        "profile": profile,
        "rewards": rewards,
    }
    evaluation = {"every": eval_every, "limit": eval_limit}
    async with connection.trainer() as client:
        # what is served decides model and regime; then what the user says, the preset, the model's card
        served = {"domain": domain, "model": model.path, "regime": asked_as(model.regime, prompt)}
        served |= {"method": method} | _said({"band_id": band, "sft": _supervised(from_sampling, golds)})
        defaults = _of_method(method, await _preset(client, preset))
        merged = {"max_tokens": model.max_tokens} | defaults | _said(chosen) | served
        merged["evaluation"] = {"max_tokens": model.max_tokens} | merged.get("evaluation", {}) | _said(evaluation)
        config = RunConfig.model_validate(merged)
        if plan:
            for line in plan_lines(await client.plan(PlanRequest(config=config, preset=preset))):
                say(line)
            return
        if dry_run:
            for line in dry_run_lines(await client.dry_run(DryRunRequest(config=config))):
                say(line)
            return
        run = await patiently(lambda: client.start(RunRequest(run_id=run_id, config=config)))
        say(f"run {run_id}: {run.state}, attempt {run.attempt}, {run.steps_done}/{config.steps} steps done before")
        say(f"  it runs on its own: Ctrl-C only stops watching, `sqlclimb runs stop {run_id}` ends it")
        await _follow(client, run)


def read_guards(options: list[str]) -> dict[GuardName, GuardAction]:
    """`NAME=ACTION` options. Raises UsageError."""
    found = {}
    for option in options:
        name, _, action = option.partition("=")
        try:
            found[GuardName(name)] = GuardAction(action)
        except ValueError as error:
            raise UsageError(
                f"--guard {option}: write NAME=ACTION; names are {', '.join(GuardName)}, "
                f"actions {', '.join(GuardAction)}"
            ) from error
    return found


def _said(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _supervised(sampling_id: str | None, golds: bool) -> dict[str, Any] | None:
    """What the options of `--method sft` say; None when none is given."""
    return _said({"sampling_id": sampling_id, "golds": golds or None}) or None


def _of_method(method: Method, preset: dict[str, Any]) -> dict[str, Any]:
    """A preset's settings are GRPO's: what SFT does not know, and how fast GRPO learns, is left out for it."""
    if method is Method.GRPO:
        return preset
    return {name: value for name, value in preset.items() if name not in (*GRPO_FIELDS, "learning_rate", "schedule")}


async def _preset(client: TrainerClient, name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    known = {preset.name: preset for preset in (await client.presets()).presets}
    if name not in known:
        raise UsageError(f"--preset {name}: there are {', '.join(known)}")
    return dict(known[name].config)


async def _follow(client: TrainerClient, run: Run) -> None:
    """Print steps and events as they come, until the run has ended. Raises StackError when it failed."""
    shown, told = run.steps_done, len((await client.events(run.run_id)).events)

    async def fetch() -> Run:
        nonlocal shown, told
        for event in (await client.events(run.run_id)).events[told:]:
            say("  " + event_line(event))
            told += 1
        for step in (await client.steps(run.run_id, shown)).steps:
            say("  " + step_line(step, run.config.steps))
            shown = step.step
        return await client.run(run.run_id)

    # the last step may land between the calls: ended only when every step has been shown
    run = await follow(fetch, lambda found: found.state in ENDED and found.steps_done <= shown, run_line)
    say(f"run {run.run_id}: {run.state} after {run.steps_done} steps, adapter {run.last_adapter} ({run.last_policy})")
    say(
        "  versions as the job reports them: "
        + ", ".join(f"{name} {version}" for name, version in run.versions.items())
    )
    if run.state is RunState.FAILED:
        raise StackError(f"run {run.run_id} failed: {run.error}; the same command resumes from the last checkpoint")
    if run.error:
        raise StackError(f"run {run.run_id} was stopped: {run.error}")


@app.command("list")
@command
async def list_runs(limit: Annotated[int, typer.Option(min=1)] = 20) -> None:
    """The newest runs."""
    async with Connection().trainer() as client:
        console().print(run_table((await client.runs(limit)).runs))


@app.command()
@command
async def presets() -> None:
    """Settings known to fit, by model and machine."""
    async with Connection().trainer() as client:
        for preset in (await client.presets()).presets:
            say(f"{preset.name:<16} {preset.title}\n{'':<16} {preset.source}")


@app.command()
@command
async def show(
    run_id: Annotated[str, typer.Argument()],
    png: Annotated[Path | None, typer.Option(help="draw the curve here")] = None,
    every: Annotated[bool, typer.Option("--all", help=f"every step, not only the last {RECENT}")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the run, all steps and events as JSON, and no text")] = False,
) -> None:
    """A run's state, its newest steps, its course drawn, what its checkpoints score, and what happened."""
    async with Connection().trainer() as client:
        run = await client.run(run_id)
        steps = (await client.steps(run_id)).steps
        events = (await client.events(run_id)).events
    if png is not None:
        from cli.curve import draw_curve  # matplotlib takes most of a second to import

        draw_curve(run, steps, png)
    if as_json:
        say(run_json(run, steps, events))
        return
    say(f"run {run_id}: {run_line(run)}, adapter {run.last_adapter}" + (f": {run.error}" if run.error else ""))
    for step in steps if every else steps[-RECENT:]:
        say("  " + step_line(step, run.config.steps))
    shown = map(attempt_line, run.attempts), drawings(steps), curve_lines(run.curve), map(event_line, events)
    for line in chain.from_iterable(shown):
        say("  " + line)
    if png is not None:
        say(f"curve: {png}")


@app.command()
@command
async def stop(run_id: Annotated[str, typer.Argument()]) -> None:
    """End a run after the step in progress; its last adapter is published and kept."""
    async with Connection().trainer() as client:
        run = await client.stop(run_id)
    say(f"run {run_id}: {run_line(run)}" + ("" if run.state in ENDED else "; it ends after the step in progress"))


@app.command()
@command
async def resume(run_id: Annotated[str, typer.Argument()]) -> None:
    """Go on with a stopped or failed run from its newest checkpoint, and follow it."""
    async with Connection().trainer() as client:
        run = await client.resume(run_id)
        say(f"run {run_id}: {run_line(run)}")
        await _follow(client, run)


@app.command()
@command
async def logs(run_id: Annotated[str, typer.Argument()]) -> None:
    """What happened to a run, and the end of its job's log."""
    async with Connection().trainer() as client:
        for event in (await client.events(run_id)).events:
            say(event_line(event))
        say((await client.log(run_id)).tail or "no log: the job has not begun, or Ray was restarted")
