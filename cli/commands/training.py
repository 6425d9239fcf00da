"""`train`, `runs`: GRPO runs."""

from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, command, say
from cli.follow import follow, patiently
from cli.stack.stack import StackError
from shared.contracts.trainer import AdvantageScale, RewardSource, Run, RunConfig, RunRequest, RunState, Schedule, Step
from shared.contracts.verifier import Profile

app = typer.Typer(help="Training runs.", no_args_is_help=True)

ENDED = (RunState.DONE, RunState.STOPPED, RunState.FAILED)


@command
async def train(
    domain: Annotated[str, typer.Argument()],
    band: Annotated[str, typer.Option(help="band id")],
    run_id: Annotated[str, typer.Option("--run", help="run id; the same id again resumes")],
    steps: Annotated[int, typer.Option()] = 40,
    prompts: Annotated[int, typer.Option(help="prompts per step")] = 32,
    k: Annotated[int, typer.Option("-k", help="samples per prompt")] = 16,
    learning_rate: Annotated[float, typer.Option()] = 2e-5,
    schedule: Annotated[Schedule, typer.Option(help="of the learning rate")] = Schedule.CONSTANT,
    advantages: Annotated[AdvantageScale, typer.Option(help="what divides a group's rewards")] = AdvantageScale.GROUP,
    rank: Annotated[int, typer.Option(help="LoRA rank")] = 16,
    seed: Annotated[int, typer.Option()] = 0,
    max_tokens: Annotated[int | None, typer.Option(help="reply budget; default from the model's card")] = None,
    profile: Annotated[Profile, typer.Option(help="comparison rule of the reward")] = Profile.STANDARD,
    rewards: Annotated[RewardSource, typer.Option(help="`shuffled` is a control")] = RewardSource.VERIFIER,
) -> None:
    """Train a LoRA adapter with GRPO on a band's prompts, and follow the run. Ctrl-C leaves the run running."""
    connection = Connection()
    model = connection.model()
    config = RunConfig.model_validate(
        {
            "domain": domain,
            "model": model.path,
            "band_id": band,
            "regime": model.regime,
            "steps": steps,
            "prompts_per_step": prompts,
            "k": k,
            "learning_rate": learning_rate,
            "schedule": schedule,
            "advantages": advantages,
            "lora": {"rank": rank, "alpha": 2 * rank},
            "max_tokens": max_tokens or model.max_tokens,
            "seed": seed,
            "profile": profile,
            "rewards": rewards,
        }
    )
    async with connection.trainer() as client:
        run = await patiently(lambda: client.start(RunRequest(run_id=run_id, config=config)))
        say(f"run {run_id}: {run.state}, attempt {run.attempt}, {run.steps_done}/{steps} steps done before")
        shown = run.steps_done

        async def fetch() -> Run:
            nonlocal shown
            for step in (await client.steps(run_id, shown)).steps:
                say("  " + step_line(step, steps))
                shown = step.step
            return await client.run(run_id)

        # the last step may land between the two calls: ended only when every step has been shown
        run = await follow(
            fetch, lambda found: found.state in ENDED and found.steps_done <= shown, lambda found: _line(found)
        )
    say(f"run {run_id}: {run.state} after {run.steps_done} steps, adapter {run.last_adapter} ({run.last_policy})")
    say(
        "  versions as the job reports them: "
        + ", ".join(f"{name} {version}" for name, version in run.versions.items())
    )
    if run.state == RunState.FAILED:
        raise StackError(f"run {run_id} failed: {run.error}; the same command resumes from the last checkpoint")


def _line(run: Run) -> str:
    return f"{run.state}, attempt {run.attempt}, {run.steps_done}/{run.config.steps} steps"


def step_line(step: Step, steps: int) -> str:
    """One step on one line."""
    seconds = step.seconds
    kl = "-" if step.kl is None else f"{step.kl:.4f}"
    return (
        f"step {step.step:>3}/{steps}  reward {step.reward:.3f}  zero-variance {step.zero_variance:.2f}  "
        f"gap {step.logprob_gap:.1e}  ratio {step.importance_ratio:.3f}  kl {kl}  tokens {step.completion_tokens:.1f}  "
        f"cut {step.cut:.2f}  probe {step.probe or '-'}  s: sample {seconds.sample:.1f} verify {seconds.verify:.1f} "
        f"learn {seconds.learn:.1f} publish {seconds.publish:.1f} total {seconds.total:.1f}"
    )


@app.command()
@command
async def show(
    run_id: Annotated[str, typer.Argument()],
    png: Annotated[Path | None, typer.Option(help="draw the curve here")] = None,
) -> None:
    """A run's state and steps."""
    async with Connection().trainer() as client:
        run = await client.run(run_id)
        steps = (await client.steps(run_id)).steps
    say(f"run {run_id}: {_line(run)}, adapter {run.last_adapter}")
    for step in steps:
        say("  " + step_line(step, run.config.steps))
    if png is not None:
        from cli.curve import draw_curve  # matplotlib takes most of a second to import

        draw_curve(run, steps, png)
        say(f"curve: {png}")
