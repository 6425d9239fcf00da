"""TRL's GRPO trainer, wired to an engine that is a service: samples from outside, adapters published outwards.

TRL is built without vLLM and told afterwards that it has one: `use_vllm` in its config would make it open an engine
of its own. From then on it calls `sync_weights` before each batch and corrects for the engine's log-probabilities.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import trl.import_utils as trl_packages

trl_packages.is_vllm_available = lambda min_version=None: False  # the engine is a service: do not load vLLM here
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # `rollout_func` warns of its novelty; our tests watch it

from datasets import Dataset  # noqa: E402
from peft import LoraConfig  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl.trainer import grpo_trainer  # noqa: E402

from services.trainer.lengths import by_length, like_lengths, whole  # noqa: E402
from services.trainer.rows import REWARD_COLUMN  # noqa: E402
from shared.contracts.trainer import RunConfig  # noqa: E402

grpo_trainer.shuffle_sequence_dict = by_length  # TRL shuffles a batch before it splits it into micro-batches

MICRO_BATCH_TOKENS = 4_096
"""Upper bound of completion tokens in one forward: memory grows with it; on the CPU larger ones are no faster."""

CHECKPOINTING_PARAMETERS = 1_000_000_000
"""From this size activations are recomputed in the backward pass; below it that only costs time."""

RolloutFunction = Callable[[list[str], Any], dict[str, Any]]
"""(task ids, k times each; the trainer) to `prompt_ids`, `completion_ids`, `logprobs`, `env_mask`, rewards."""


@dataclass(frozen=True)
class Agreement:
    """How trainer and engine agree on one batch; over tokens the policy chose and that count."""

    logprob_gap: float
    """Mean |trainer - engine| in nats."""
    importance_ratio: float
    """Mean ratio trainer / engine before the cap."""
    kl: float
    """Mean KL to base per token (k3 estimate), on a slice of the batch that fits one forward."""


class EngineSeat:
    """What TRL calls where it expects its own vLLM."""

    def __init__(self, sync_weights: Callable[[], None]) -> None:
        self.sync_weights = sync_weights


class GrpoLearner(GRPOTrainer):  # type: ignore[misc]  # TRL ships no types
    """GRPO that also measures, per batch, how trainer and engine agree."""

    agreement: Agreement

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
        difference = (batch["old_per_token_logps"] - batch["sampling_per_token_logps"])[mask]
        some = difference.numel() > 0
        self.agreement = Agreement(
            logprob_gap=difference.abs().mean().item() if some else 0.0,
            importance_ratio=difference.exp().mean().item() if some else 1.0,
            kl=self._kl_to_base(batch, mask) if some else 0.0,
        )
        return batch

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's, over rows of like length at a time. Text only: what TRL adds for images does not come here."""
        flags = {name: value for name, value in options.items() if value}
        rows, logps, entropies, losses = [], [], [], []
        for chunk, first, end in like_lengths(attention_mask, logits_to_keep, batch_size or len(input_ids)):
            part, entropy, loss = super()._get_per_token_logps_and_entropies(
                model,
                input_ids[chunk, first:end],
                attention_mask[chunk, first:end],
                logits_to_keep - (input_ids.size(1) - end),
                **flags,
            )
            rows.append(chunk)
            logps.append(part)
            entropies.append(entropy)
            losses.append(loss)
        return (
            whole(logps, rows, logits_to_keep),
            None if entropies[0] is None else whole(entropies, rows, logits_to_keep),
            None if losses[0] is None else torch.stack(losses).mean(),
        )

    @torch.no_grad()
    def _kl_to_base(self, batch: dict[str, Any], mask: torch.Tensor) -> float:
        stride = -(-len(mask) // self.args.per_device_train_batch_size)
        rows = slice(None, None, stride)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)[rows]
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)[rows]
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            base, _, _ = self._get_per_token_logps_and_entropies(
                self.model, ids, attention, batch["completion_ids"].size(1)
            )
        ratio = (base - batch["old_per_token_logps"][rows])[mask[rows]]
        return (ratio.exp() - ratio - 1).mean().item() if ratio.numel() > 0 else 0.0

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """No model card in every checkpoint."""


def build_learner(
    config: RunConfig,
    folder: Path,
    batches: list[list[str]],
    rollout: RolloutFunction,
    sync_weights: Callable[[], None],
    callbacks: list[TrainerCallback],
) -> GrpoLearner:
    """A learner that trains on `batches`, one a step, and saves a checkpoint into `folder` after each.

    The LoRA's start, and all else that is random here, follows from `config.seed`.
    """
    accelerated = torch.cuda.is_available()
    model = AutoModelForCausalLM.from_pretrained(config.model, dtype="auto" if accelerated else torch.float32)
    large = model.num_parameters() >= CHECKPOINTING_PARAMETERS
    learner = GrpoLearner(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(config.model, padding_side="left"),
        reward_funcs=execution_reward,
        args=grpo_config(config, folder, accelerated=accelerated, checkpointing=large),
        train_dataset=Dataset.from_dict({"prompt": [task for batch in batches for task in batch]}),
        peft_config=LoraConfig(
            r=config.lora.rank,
            lora_alpha=config.lora.alpha,
            lora_dropout=0.0,
            target_modules="all-linear",  # PEFT leaves the output head out
            task_type="CAUSAL_LM",
        ),
        rollout_func=rollout,
        callbacks=callbacks,
    )
    learner.remove_callback(PrinterCallback)  # each step is logged to the control database
    learner.use_vllm = True
    learner.vllm_generation = EngineSeat(sync_weights)
    learner._last_loaded_step = -1
    return learner


def grpo_config(config: RunConfig, folder: Path, *, accelerated: bool, checkpointing: bool) -> GRPOConfig:
    """TRL's settings for a run. What TRL might change between versions is pinned here."""
    rows = config.prompts_per_step * config.k
    micro_batch = micro_batch_rows(rows, config.max_tokens)
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
        loss_type="dapo",
        scale_rewards=config.advantages.value,
        mask_truncated_completions=True,
        beta=config.beta,
        epsilon_high=config.epsilon_high,
        use_bias_correction_kl=True,
        importance_sampling_level="token",
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


def micro_batch_rows(rows: int, max_tokens: int) -> int:
    """Rows in one forward: the largest divisor of `rows` whose completions stay within MICRO_BATCH_TOKENS."""
    fitting = max(1, MICRO_BATCH_TOKENS // max_tokens)
    return max(size for size in range(1, rows + 1) if rows % size == 0 and size <= fitting)


def execution_reward(**columns: Any) -> list[float | None]:
    """The verifier's rewards, as the rollout function passed them on."""
    rewards: list[float | None] = columns[REWARD_COLUMN]
    return rewards
