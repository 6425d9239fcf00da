"""The preflight of guard `memory`: what the learner will hold against what its device has, before the first step."""

from pathlib import Path

import psutil
import torch

from services.trainer.planning.plan import GIB, trainer_memory
from services.trainer.planning.planner import read_shape
from shared.contracts.run_config import RunConfig


def memory_preflight(config: RunConfig) -> tuple[float, float] | None:
    """(needed, available) bytes of the learner's device once the model is loaded; None for a shape not known here."""
    shape = read_shape(Path(config.model))
    if shape is None:
        return None
    lines = trainer_memory(config, shape, 2 if torch.cuda.is_available() else 4)
    needed = sum(line.gib for line in lines if line.part not in ("weights", "runtime")) * GIB
    free = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else psutil.virtual_memory().available
    return needed, float(free)
