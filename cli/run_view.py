"""Runs and plans as text for a terminal."""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from rich.table import Table

from cli.render import plain_table
from cli.sparkline import sparkline
from cli.supervised_view import Series, supervised_line, supervised_series
from shared.contracts.planning import Plan
from shared.contracts.trainer import AttemptRecord, CurvePoint, Run, RunEvent, Step

RECENT = 10
"""Steps shown one by one unless all are asked for."""


def run_line(run: Run) -> str:
    """How a run stands, in a few words."""
    return f"{run.state}, attempt {run.attempt}, {run.steps_done}/{run.config.steps} steps"


def step_line(step: Step, steps: int) -> str:
    """One step on one line."""
    if step.supervised is not None:
        return supervised_line(step, step.supervised, steps)
    seconds = step.seconds
    kl = "-" if step.kl is None else f"{step.kl:.4f}"
    effective = "-" if step.effective_sample_size is None else f"{step.effective_sample_size:.3f}"
    return (
        f"step {step.step:>3}/{steps}  reward {step.reward:.3f}  zero-variance {step.zero_variance:.2f}  "
        f"refilled {step.refilled}  gap {step.logprob_gap:.1e}  ratio {step.importance_ratio:.3f}  "
        f"effective {effective}  kl {kl}  tokens {step.completion_tokens:.1f}  cut {step.cut:.2f}  "
        f"probe {step.probe or '-'}  s: sample {seconds.sample:.1f} verify {seconds.verify:.1f} "
        f"learn {seconds.learn:.1f} publish {seconds.publish:.1f} total {seconds.total:.1f}"
    )


def drawings(steps: Sequence[Step]) -> list[str]:
    """Reward, zero-variance share, gap, lengths and time over the steps; a line each, with first and last value."""
    series: Series = [
        ("reward", [step.reward for step in steps], 0.0, 1.0),
        ("zero-variance", [step.zero_variance for step in steps], 0.0, 1.0),
        ("no SQL", [step.no_sql for step in steps], 0.0, 1.0),
        ("gap (nats)", [step.logprob_gap for step in steps], 0.0, None),
        ("KL to base", [step.kl or 0.0 for step in steps], 0.0, None),
        ("effective", [step.effective_sample_size or 0.0 for step in steps], 0.0, 1.0),
        ("tokens", [step.completion_tokens for step in steps], 0.0, None),
        ("cut", [step.cut for step in steps], 0.0, 1.0),
        ("seconds", [step.seconds.total for step in steps], 0.0, None),
    ]
    if steps and steps[0].supervised is not None:
        series = supervised_series(steps)
    return [
        f"{title:<14} {sparkline(values, low, high)}  {values[0]:.3g} → {values[-1]:.3g}"
        for title, values, low, high in series
        if values
    ]


def curve_lines(curve: Sequence[CurvePoint]) -> list[str]:
    """What checkpoints score, one a line."""
    return [
        f"step {point.step:>4}  {point.kind:<8} "
        + (
            f"pass@1 {point.pass_at_1:.3f} [{point.low:.3f}, {point.high:.3f}]"
            if point.pass_at_1 is not None
            else f"not measured: {point.error}"
            if point.error
            else "being measured"
        )
        for point in curve
    ]


def attempt_line(attempt: AttemptRecord) -> str:
    """What an attempt ran."""
    code = attempt.code
    changed = " with changes" if code.dirty else ""
    commit = f" at {code.commit[:12]}{changed}" if code.commit else ""
    image = f", image {code.image}" if code.image else ""
    return f"{attempt.at:%Y-%m-%d %H:%M:%S}  attempt {attempt.attempt}: sqlclimb {code.version}{commit}{image}"


def run_json(run: Run, steps: Sequence[Step], events: Sequence[RunEvent]) -> str:
    """All that is known of a run, for programs."""
    parts = {"run": run, "steps": list(steps), "events": list(events)}
    return TypeAdapter(dict[str, Any]).dump_json(parts, indent=1).decode()


def event_line(event: RunEvent) -> str:
    """One event."""
    action = f" ({event.action})" if event.action else ""
    return f"{event.at:%Y-%m-%d %H:%M:%S}  step {event.step}  {event.kind}{action}: {event.message}"


def run_table(runs: Sequence[Run]) -> Table:
    """Runs, one a row."""
    table = plain_table("run", "state", "attempt", "steps", "learns from", "begins at", "policy", "begun", "error")
    for run in runs:
        table.add_row(
            run.run_id,
            run.state,
            str(run.attempt),
            f"{run.steps_done}/{run.config.steps}",
            run.config.source,
            run.config.start_from,
            run.last_policy,
            f"{run.created_at:%Y-%m-%d %H:%M}",
            run.error[:80],
        )
    return table


def plan_lines(plan: Plan) -> list[str]:
    """A plan, one fact a line."""
    hardware = plan.hardware
    machine = f"{hardware.gpus} x {hardware.gpu}" if hardware.gpus else "CPU"
    parts = [f"  {line.device:<8} {line.part:<42} {line.gib:8.2f} GiB" for line in plan.memory]
    return [
        f"model      {plan.parameters / 1e9:.2f} B parameters, LoRA {plan.lora_parameters / 1e6:.1f} M, on {machine}",
        *parts,
        f"memory     {plan.needed_gib:.1f} GiB needed on the tightest device, {plan.available_gib:.1f} there: "
        + ("fits" if plan.fits else "DOES NOT FIT"),
        f"a step     {plan.samples_per_step} samples, {plan.tokens_per_step:,.0f} tokens (prompt "
        f"{plan.prompt_tokens:.0f}, reply {plan.reply_tokens:.0f}); generation {plan.generation_seconds:.0f} s, "
        f"learning {plan.learning_seconds:.0f} s ({plan.learning_flops:.1e} operations), together "
        f"{plan.step_seconds:.0f} s",
        f"the run    {plan.passes:.1f} passes over {plan.band_prompts} prompts, {plan.hours:.2f} h, "
        f"{plan.gpu_hours:.1f} GPU hours, {plan.dollars:.0f} dollars at {hardware.price_per_gpu_hour:.2f} a GPU hour",
        *(f"warning    {warning}" for warning in plan.warnings),
    ]
