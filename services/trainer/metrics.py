"""What the API exports of runs, until a little after their end: the newest step's figures, one series a run."""

from prometheus_client import Counter, Gauge

from shared.contracts.trainer import Step

STEP = Gauge("sqlclimb_run_step", "Optimizer steps done", ["run"])
FIGURES = {
    name: Gauge(f"sqlclimb_run_{name}", description, ["run"])
    for name, description in {
        "reward": "Mean reward of the newest step",
        "zero_variance": "Share of its groups that teach nothing",
        "logprob_gap": "Trainer against engine, nats a token",
        "effective_sample_size": "Of the importance weights, as a share of the tokens",
        "completion_tokens": "Mean reply length",
        "cut": "Share of replies that the budget cuts",
        "no_sql": "Share of replies without a statement",
        "kl": "Mean KL to base, nats a token",
    }.items()
}
SUPERVISED_FIGURES = {
    name: Gauge(f"sqlclimb_run_{name}", description, ["run"])
    for name, description in {
        "token_accuracy": "Share of the newest step's reply tokens that a supervised run's policy ranks first",
        "entropy": "Of a supervised run's policy at reply tokens, nats",
    }.items()
}
RESTARTS = Counter("sqlclimb_run_restarts", "Attempts begun by the trainer itself because the one before died")
SECONDS = Gauge("sqlclimb_run_step_seconds", "Where the newest step's time went", ["run", "phase"])


def show(run_id: str, step: Step) -> None:
    """The run's newest step."""
    STEP.labels(run_id).set(step.step)
    # a supervised step's figures of samples are 0 for want of any, and a 0 would be read as a reward
    figures, source = (FIGURES, step) if step.supervised is None else (SUPERVISED_FIGURES, step.supervised)
    for name, gauge in figures.items():
        value = getattr(source, name)
        if value is not None:
            gauge.labels(run_id).set(value)
    for phase, seconds in step.seconds.model_dump().items():
        SECONDS.labels(run_id, phase).set(seconds)


def forget(run_id: str) -> None:
    """The run has ended some time ago: its series would otherwise stand still for ever."""
    for gauge in (STEP, *FIGURES.values(), *SUPERVISED_FIGURES.values()):
        gauge.remove(run_id)
    SECONDS.remove_by_labels({"run": run_id})
