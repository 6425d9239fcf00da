"""Charts: a run's training curve, and pass@1 over samplings."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from shared.contracts.measuring import Report
from shared.contracts.rollout import ENDPOINT_POLICY_PREFIX
from shared.contracts.run_config import Method
from shared.contracts.trainer import Run, Step
from shared.ids import parse_policy

MEAN_OVER_STEPS = 5
"""Single-step reward is noisy: each step trains on other prompts."""


def draw_curve(run: Run, steps: list[Step], path: Path) -> None:
    """Reward (raw and mean of 5 steps), zero-variance share, trainer/engine gap and KL over steps; or SFT's figures."""
    if run.config.method is Method.SFT:
        _draw_supervised(run, steps, path)
        return
    numbers = np.array([step.step for step in steps])
    rewards = np.array([step.reward for step in steps])
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    top.plot(numbers, rewards, ".", color="tab:gray", label="reward of the step")
    if len(steps) >= MEAN_OVER_STEPS:
        mean = np.convolve(rewards, np.ones(MEAN_OVER_STEPS) / MEAN_OVER_STEPS, mode="valid")
        top.plot(numbers[MEAN_OVER_STEPS - 1 :], mean, color="tab:blue", label=f"mean of {MEAN_OVER_STEPS} steps")
    top.plot(numbers, [step.zero_variance for step in steps], "--", color="tab:orange", label="zero-variance share")
    top.set_ylim(0, 1)
    top.set_title(f"{run.run_id}: {run.config.prompts_per_step} prompts x {run.config.k} samples a step")
    top.legend(loc="lower right")
    bottom.plot(numbers, [step.logprob_gap for step in steps], color="tab:red", label="trainer/engine gap (nats)")
    bottom.plot(numbers, [step.kl or np.nan for step in steps], color="tab:green", label="KL to base (nats/token)")
    bottom.set_yscale("log")
    bottom.set_xlabel("step")
    bottom.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_supervised(run: Run, steps: list[Step], path: Path) -> None:
    """Loss and token accuracy over steps."""
    numbers = [step.step for step in steps]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    top.plot(numbers, [step.loss for step in steps], color="tab:blue", label="loss (nats a reply token)")
    top.set_title(f"{run.run_id}: {run.config.prompts_per_step} examples a step, of {run.config.source}")
    top.legend(loc="upper right")
    accuracy = [step.supervised.token_accuracy for step in steps if step.supervised]
    bottom.plot(numbers, accuracy, color="tab:green", label="share of reply tokens ranked first")
    bottom.set_ylim(0, 1)
    bottom.set_xlabel("step")
    bottom.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_reports(reports: list[Report], path: Path) -> None:
    """pass@1 with its 95 % interval, and pass@k: over the steps of runs when there are two checkpoints, else in order.

    Over steps, what is no checkpoint (the base, a model elsewhere) is a level across the chart.
    """
    checkpoints: dict[str, list[tuple[int, Report]]] = {}
    levels: list[Report] = []
    for found in reports:
        wanted = None if found.policy.startswith(ENDPOINT_POLICY_PREFIX) else parse_policy(found.policy)
        if wanted is None:
            levels.append(found)
        else:
            checkpoints.setdefault(wanted.run_id, []).append((wanted.step, found))
    over_steps = sum(map(len, checkpoints.values())) > 1
    figure, axes = plt.subplots(figsize=(max(6.0, 1.2 * len(reports)), 4.5), layout="constrained")
    if over_steps:
        for run_id, points in checkpoints.items():
            points.sort(key=lambda point: point[0])
            _draw_points(axes, [step for step, _ in points], [found for _, found in points], f"{run_id}, pass@1", "o-")
        for place, found in enumerate(levels, len(checkpoints)):
            _draw_level(axes, found, f"C{place}")
        axes.set_xlabel("step")
    else:
        places = list(range(len(reports)))
        _draw_points(axes, places, reports, "pass@1", "o")
        axes.set_xticks(places, [found.policy for found in reports], rotation=30, ha="right")
    axes.set_ylim(0, 1)
    axes.set_title(f"{reports[0].lines[0].tasks} tasks, k = {reports[0].k}, 95 % intervals; bars: pass@k")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_points(axes: Axes, places: list[int], reports: list[Report], label: str, form: str) -> None:
    overall = [found.lines[0] for found in reports]
    values = np.array([line.pass_at_1.value for line in overall])
    ends = np.array([(line.pass_at_1.low, line.pass_at_1.high) for line in overall])
    drawn = axes.errorbar(places, values, yerr=np.abs(ends - values[:, None]).T, fmt=form, capsize=4, label=label)
    axes.plot(places, [line.pass_at_k.value for line in overall], "_", color=drawn[0].get_color(), markersize=12)


def _draw_level(axes: Axes, found: Report, color: str) -> None:
    once = found.lines[0].pass_at_1
    axes.axhline(once.value, linestyle="--", label=f"{found.policy}, pass@1", color=color)
    axes.axhspan(once.low, once.high, color=color, alpha=0.15)
