"""What TRL and PEFT are told for a run. What they might change between versions is pinned here. Pure."""

from pathlib import Path
from typing import Any

from peft import LoraConfig
from trl import GRPOConfig

from services.trainer.learning.sizes import micro_batch_rows
from shared.contracts.run_config import Loss, RunConfig

CISPO_CAP = 5.0
"""TRL reads `epsilon_high` as the cap of the ratio itself under CISPO (https://huggingface.co/papers/2510.13786)."""


def lora_config(config: RunConfig) -> LoraConfig:
    """The run's LoRA."""
    return LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=0.0,
        target_modules="all-linear",  # PEFT leaves the output head out
        task_type="CAUSAL_LM",
    )


def grpo_config(
    config: RunConfig, folder: Path, *, accelerated: bool, checkpointing: bool, whole_groups: bool
) -> GRPOConfig:
    """TRL's settings. `whole_groups`: a micro-batch never parts a group. Rows are shared out among `config.workers`."""
    rows = config.prompts_per_step * config.k // config.workers
    micro_batch = micro_batch_rows(rows, config.max_tokens, config.k if whole_groups else 1, config.micro_batch)
    return GRPOConfig(
        **common_settings(config, folder, accelerated=accelerated, checkpointing=checkpointing),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=rows // micro_batch,
        num_generations=config.k,
        num_iterations=1,
        max_completion_length=config.max_tokens,
        shuffle_dataset=False,
        temperature=config.temperature,
        top_p=1.0,
        top_k=0,
        loss_type="grpo" if config.loss is Loss.GSPO else config.loss.value,
        scale_rewards=config.advantages.value,
        mask_truncated_completions=True,
        beta=config.beta,
        epsilon_high=CISPO_CAP if config.loss is Loss.CISPO else config.epsilon_high,
        use_bias_correction_kl=True,
        importance_sampling_level="sequence" if config.loss is Loss.GSPO else "token",
        use_vllm=False,
        vllm_importance_sampling_correction=True,
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_max=config.importance_cap,
        vllm_importance_sampling_clip_min=None,
        disable_dropout=True,
    )


def common_settings(config: RunConfig, folder: Path, *, accelerated: bool, checkpointing: bool) -> dict[str, Any]:
    """What every method's trainer is told: the optimizer, the device, one checkpoint and one log a step."""
    return {
        "output_dir": str(folder),
        "max_steps": config.steps,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": config.schedule.value,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "gradient_checkpointing": checkpointing,
        "bf16": accelerated,
        "use_cpu": not accelerated,
        "dataloader_pin_memory": accelerated,
        "seed": config.seed,
        "save_strategy": "steps",
        "save_steps": 1,
        "save_only_model": config.shards_weights,  # see `sharding.save_optimizer`
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "ddp_find_unused_parameters": False,
        "ignore_data_skip": True,  # a resumed run's dataset begins at its next step
    }
