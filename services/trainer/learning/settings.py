"""What TRL and PEFT are told for a run. What they might change between versions is pinned here. Pure."""

from pathlib import Path

from peft import LoraConfig
from trl import GRPOConfig

from shared.contracts.trainer import Loss, RunConfig

MICRO_BATCH_TOKENS = 4_096
"""Upper bound of completion tokens in one micro-batch, were every reply as long as it may be."""

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
    micro_batch = micro_batch_rows(rows, config.max_tokens, config.k if whole_groups else 1)
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=config.steps,
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
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.schedule.value,
        weight_decay=0.0,
        max_grad_norm=1.0,
        gradient_checkpointing=checkpointing,
        disable_dropout=True,
        bf16=accelerated,
        use_cpu=not accelerated,
        dataloader_pin_memory=accelerated,
        seed=config.seed,
        save_strategy="steps",
        save_steps=1,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        ignore_data_skip=True,  # a resumed run's dataset begins at its next step
    )


def micro_batch_rows(rows: int, max_tokens: int, unit: int = 1) -> int:
    """Rows in a micro-batch: a multiple of `unit` that divides `rows`, within MICRO_BATCH_TOKENS unless `unit` is not.

    `unit` divides `rows`.
    """
    fitting = max(unit, MICRO_BATCH_TOKENS // max_tokens)
    return max(size for size in range(unit, rows + 1, unit) if rows % size == 0 and size <= fitting)
