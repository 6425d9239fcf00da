"""FSDP2 for a LoRA on frozen weights, as transformers shards a model that it loads.

Each worker reads only its share of the base, and gathers a layer's weights when it computes with that layer. The
adapter is attached afterwards: it is small, every worker holds it whole, and the trainer averages its gradient. So
adapter, optimizer and checkpoint are those of one worker: any number of workers resumes them, with or without FSDP2.

Gathering takes all workers: each must forward as often as the others. Hence no shared prompts, whose number of
forwards hangs on the lengths in a worker's groups, and no forward by one worker alone.
"""

from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

from services.trainer.failures import RunFailed
from shared.contracts.run_config import RunConfig

NO_SHARED_PROMPTS = "under FSDP2 workers must forward equally often, and shared prompts take as many as lengths ask for"


def load_sharded(config: RunConfig, dtype: torch.dtype | str) -> Any:
    """The base, sharded over all workers, each on its device. Raises RunFailed for a model without a plan for it."""
    try:
        return AutoModelForCausalLM.from_pretrained(
            config.model, dtype=dtype, distributed_config=DistributedConfig(fsdp_size=config.workers)
        )
    except ValueError as error:
        raise RunFailed(
            f"`data_parallel`: {config.model} cannot be sharded by FSDP2: {error}. Set it to ddp, where each worker "
            "holds all weights. Nothing was trained"
        ) from error


class AdapterSaver:
    """A part of a trainer (of transformers) that saves the adapter of a sharded model by the first worker alone."""

    model: Any

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """The trainer's own; left to itself, PEFT would gather every weight of the base first, which takes them all."""
        if state_dict is None and is_sharded(self.model):
            state_dict = {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        super()._save(output_dir, state_dict)  # type: ignore[misc]  # of the trainer that comes after this part


def save_optimizer(learner: Any) -> None:
    """Let a trainer that was built with `save_only_model` save all it needs to resume.

    Transformers refuses that at building for a sharded model, whose optimizer it cannot save. Ours holds only the
    adapter's state, which is whole.
    """
    learner.args.save_only_model = False


def is_sharded(model: Any) -> bool:
    """Whether a model, or the one an adapter is attached to, was loaded by `load_sharded`."""
    return bool(getattr(model, "is_distributed_loading_by_transformers", False))
