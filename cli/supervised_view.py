"""Supervised runs as text for a terminal: what they learn from, their steps, their course."""

from collections.abc import Sequence

from shared.contracts.planning import DryRun
from shared.contracts.supervision import SupervisedFigures
from shared.contracts.trainer import Step

Series = list[tuple[str, list[float], float | None, float | None]]
"""Title, values, and the ends of the scale where they are fixed."""


def supervised_line(step: Step, figures: SupervisedFigures, steps: int) -> str:
    """One step on one line."""
    seconds = step.seconds
    return (
        f"step {step.step:>3}/{steps}  loss {step.loss:.3f}  accuracy {figures.token_accuracy:.3f}  "
        f"entropy {figures.entropy:.3f}  gradient {step.grad_norm:.2f}  reply tokens {figures.reply_tokens}  "
        f"passes {figures.passes:.2f}  probe {step.probe or '-'}  s: learn {seconds.learn:.1f} "
        f"publish {seconds.publish:.1f} total {seconds.total:.1f}"
    )


def supervised_series(steps: Sequence[Step]) -> Series:
    """Loss, accuracy, entropy, gradient and time over the steps."""
    figures = [step.supervised for step in steps if step.supervised]
    return [
        ("loss (nats)", [step.loss for step in steps], 0.0, None),
        ("accuracy", [figure.token_accuracy for figure in figures], 0.0, 1.0),
        ("entropy", [figure.entropy for figure in figures], 0.0, None),
        ("gradient", [step.grad_norm for step in steps], 0.0, None),
        ("seconds", [step.seconds.total for step in steps], 0.0, None),
    ]


def dry_run_lines(found: DryRun) -> list[str]:
    """What a run would learn from, one fact a line."""
    dropped = [f"  {reason:<16} {count:>7}" for reason, count in found.dropped.items()]
    return [
        f"tasks      {found.tasks} of the train split",
        f"kept       {found.kept} examples, {found.tasks - found.kept} tasks dropped",
        *dropped,
        f"tokens     {found.prompt_tokens:,} of prompts, {found.reply_tokens:,} of replies, which carry the loss; the "
        f"longest example has {found.longest:,}, the model takes {found.window:,}",
        f"the run    {found.passes:.1f} passes over the examples. Nothing was started",
    ]
