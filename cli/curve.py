"""Charts: a run's training curve, and pass@1 over samplings."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from shared.contracts.measuring import Report
from shared.contracts.trainer import Run, Step

MEAN_OVER_STEPS = 5
"""Single-step reward is noisy: each step trains on other prompts."""


def draw_curve(run: Run, steps: list[Step], path: Path) -> None:
    """Reward (raw and mean of 5 steps), zero-variance share, trainer/engine gap and KL over steps."""
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


def draw_reports(reports: list[Report], path: Path) -> None:
    """pass@1 with its 95 % interval, and pass@k, one point a sampling in the given order."""
    overall = [found.lines[0] for found in reports]
    places = np.arange(len(reports))
    values = np.array([line.pass_at_1.value for line in overall])
    ends = np.array([(line.pass_at_1.low, line.pass_at_1.high) for line in overall])
    reach = np.abs(ends - values[:, None])
    figure, axes = plt.subplots(figsize=(max(4.0, 1.2 * len(reports)), 4.5), layout="constrained")
    axes.errorbar(places, values, yerr=reach.T, fmt="o", capsize=4, color="tab:blue", label="pass@1, 95 % interval")
    axes.plot(places, [line.pass_at_k.value for line in overall], "_", color="tab:gray", label="pass@k")
    axes.set_xticks(places, [found.policy for found in reports], rotation=30, ha="right")
    axes.set_ylim(0, 1)
    axes.set_title(f"{overall[0].tasks} tasks, k = {reports[0].k}")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
