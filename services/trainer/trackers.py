"""Which trackers are installed here: asked before any compute is spent on a run. Loads none of them."""

import importlib.util
from collections.abc import Sequence

from shared.contracts.run_config import Tracker

PACKAGES = {
    Tracker.TENSORBOARD: ("tensorboardX", "tensorboard"),
    Tracker.TRACKIO: ("trackio",),
    Tracker.MLFLOW: ("mlflow",),
    Tracker.WANDB: ("wandb",),
}
"""Any of them serves; the first one is what we say to install."""


def missing_trackers(wanted: Sequence[Tracker]) -> str:
    """A sentence that names what is not installed in this image and what to do; empty when all are."""
    missing = [tracker for tracker in wanted if not any(map(importlib.util.find_spec, PACKAGES[tracker]))]
    if not missing:
        return ""
    packages = " and ".join(PACKAGES[tracker][0] for tracker in missing)
    return (
        f"{' and '.join(missing)} cannot be reported to: {packages} is not installed where the trainer runs. "
        f"Install it in the trainer's image, or leave {' and '.join(missing)} out of `report_to`"
    )
