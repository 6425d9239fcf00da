"""TRL's GRPO trainer, wired to an engine that is a service: samples from outside, adapters published outwards.

TRL is built without vLLM and told afterwards that it has one: `use_vllm` in its config would make it open an engine
of its own. From then on it calls `sync_weights` before each batch and corrects for the engine's log-probabilities.
The losses are TRL's. The forward that they share is ours: it computes a group's prompt once where the model's cache
allows it (`shared_prompt.py`), and it yields the correction's ratio too, for which TRL forwards each batch once more.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import trl.import_utils as trl_packages
from torch import Tensor

trl_packages.is_vllm_available = lambda min_version=None: False  # the engine is a service: do not load vLLM here
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # `rollout_func` warns of its novelty; our tests watch it

from datasets import Dataset  # noqa: E402
from peft import PeftModel  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback  # noqa: E402
from trl import GRPOTrainer  # noqa: E402
from trl.trainer.utils import split_tensor_dict  # noqa: E402

from services.trainer.failures import RunFailed  # noqa: E402
from services.trainer.job.workers import FirstWorkerCallback, by_first, rollout_by_first  # noqa: E402
from services.trainer.learning.activations import limits_of  # noqa: E402
from services.trainer.learning.agreement import Agreement, AgreementSums  # noqa: E402
from services.trainer.learning.lengths import by_length, like_lengths, whole  # noqa: E402
from services.trainer.learning.rows import REWARD_COLUMN  # noqa: E402
from services.trainer.learning.settings import grpo_config, lora_config  # noqa: E402
from services.trainer.learning.sharding import (  # noqa: E402
    NO_SHARED_PROMPTS,
    AdapterSaver,
    is_sharded,
    load_sharded,
    save_optimizer,
)
from services.trainer.learning.shared_prompt import Limits, refusal, score_completions  # noqa: E402
from services.trainer.learning.sizes import CHECKPOINTING_PARAMETERS, KL_STRIDE  # noqa: E402
from shared.contracts.run_config import RunConfig, SharedPrompt  # noqa: E402

log = logging.getLogger(__name__)

RolloutFunction = Callable[[list[str], Any], dict[str, Any]]
"""(task ids, k times each; the trainer) to `prompt_ids`, `completion_ids`, `logprobs`, `env_mask`, rewards."""


class EngineSeat:
    """What TRL calls where it expects its own vLLM."""

    def __init__(self, sync_weights: Callable[[], None]) -> None:
        self.sync_weights = sync_weights


class GrpoLearner(AdapterSaver, GRPOTrainer):  # type: ignore[misc]  # TRL ships no types
    """GRPO that shares prompts and also measures, per batch, how trainer and engine agree."""

    agreement: Agreement
    limits: Limits | None = None
    """Set where prompts are shared: what one forward and its wait for the backward pass may hold."""
    _learning: dict[str, Any] | None = None
    """The micro-batch whose loss is being computed."""
    _buffered_inputs: list[dict[str, Any]] | None
    """TRL's: the batch's micro-batches."""

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """TRL's, for one update a batch; in place of its shuffle an order that parts no group, or pads little."""
        if self._step % self.args.steps_per_generation == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(generation_batch)
            ordered = batch if self.limits else by_length(batch)
            self._buffered_inputs = split_tensor_dict(ordered, self.args.steps_per_generation)
            self._sums = AgreementSums()
        inputs: dict[str, Any] = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.vllm_importance_sampling_correction = False  # else TRL forwards the whole batch for the correction
        try:
            batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        finally:
            self.vllm_importance_sampling_correction = True
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        self._learning = inputs
        try:
            loss: Tensor = super()._compute_loss(model, inputs)
        finally:
            self._learning = None
        if self.accelerator.sync_gradients:  # the batch's last micro-batch
            self.agreement = self._sums.close(self._over_workers)
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """TRL's, over rows of like length at a time. Text only: what TRL adds for images does not come here."""
        size = batch_size or len(input_ids)
        if self.limits:
            scored = self._shared(model, input_ids, attention_mask, logits_to_keep, size)
        else:
            scored = self._apart(model, input_ids, attention_mask, logits_to_keep, size, options)
        if self._learning is not None:
            self._correct(self._learning, scored[0].detach())
        return scored

    def _shared(
        self, model: Any, ids: Tensor, mask: Tensor, width: int, size: int
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        assert self.limits is not None
        inner = self.accelerator.unwrap_model(model)
        with self.accelerator.autocast():
            parts = [
                score_completions(inner, *part, width, self.limits, first_model=model)
                for part in zip(torch.split(ids, size), torch.split(mask, size), strict=True)
            ]
        return torch.cat([part.logprobs for part in parts]), torch.cat([part.entropies for part in parts]), None

    def _apart(
        self, model: Any, ids: Tensor, mask: Tensor, width: int, size: int, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        flags = {name: value for name, value in options.items() if value}
        rows, logps, entropies, losses = [], [], [], []
        for chunk, first, end in like_lengths(mask, width, size):
            part, entropy, loss = super()._get_per_token_logps_and_entropies(
                model, ids[chunk, first:end], mask[chunk, first:end], width - (ids.size(1) - end), **flags
            )
            rows.append(chunk)
            logps.append(part)
            entropies.append(entropy)
            losses.append(loss)
        return (
            whole(logps, rows, width),
            None if entropies[0] is None else whole(entropies, rows, width),
            None if losses[0] is None else torch.stack(losses).mean(),
        )

    def _correct(self, inputs: dict[str, Any], logps: Tensor) -> None:
        """Give TRL the micro-batch's importance weights: they hang on the policy that learns, which is this one."""
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        difference = (logps - inputs["sampling_per_token_logps"]).nan_to_num(nan=0.0)
        weights = difference.where(mask, 0).exp().clamp(max=self.vllm_importance_sampling_clip_max)
        inputs["importance_sampling_ratio"] = weights
        self._sums.add(difference[mask], weights[mask])
        parts, step = self.args.steps_per_generation, self.state.global_step
        if "ref_per_token_logps" in inputs:
            self._sums.add_kl((inputs["ref_per_token_logps"] - logps)[mask])
        elif self._step % parts % KL_STRIDE == step % min(KL_STRIDE, parts):
            stride = max(1, min(KL_STRIDE // parts, len(mask)))
            rows = slice(step % stride, None, stride)
            self._sums.add_kl((self._base_logps(inputs, rows) - logps[rows])[mask[rows]])

    @torch.no_grad()
    def _base_logps(self, inputs: dict[str, Any], rows: slice) -> Tensor:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)[rows]
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)[rows]
        learning, self._learning = self._learning, None
        try:
            with self.accelerator.unwrap_model(self.model).disable_adapter():
                logps, _, _ = self._get_per_token_logps_and_entropies(
                    self.model, ids, attention, inputs["completion_ids"].size(1)
                )
        finally:
            self._learning = learning
        return logps

    def _over_workers(self, sums: Tensor) -> Tensor:
        total: Tensor = self.accelerator.reduce(sums.to(self.accelerator.device), reduction="sum")
        return total

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """The adapter in training; transformers would overlook it beside TRL's frozen copy of the start, `ref`."""
        self.model.load_adapter(resume_from_checkpoint, "default", is_trainable=True)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """No model card in every checkpoint."""


def build_learner(
    config: RunConfig,
    folder: Path,
    batches: list[list[str]],
    rollout: RolloutFunction,
    sync_weights: Callable[[], None],
    callbacks: list[TrainerCallback],
    start: Path | None = None,
) -> GrpoLearner:
    """A learner that trains on `batches`, one a step, and saves a checkpoint into `folder` after each.

    `start`: folder of the adapter that goes on; without it the LoRA's start, and all else that is random here, follows
    from `config.seed`. With several workers only the first one samples, syncs and runs the callbacks. Raises RunFailed.
    """
    accelerated = torch.cuda.is_available()
    model = load_base(config)
    large = model.num_parameters() >= CHECKPOINTING_PARAMETERS
    sharing = shares_prompts(config, model)
    if start is not None:
        model = PeftModel.from_pretrained(model, str(start), is_trainable=True)
    learner = GrpoLearner(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(config.model, padding_side="left"),
        reward_funcs=execution_reward,
        args=grpo_config(
            config, folder, accelerated=accelerated, checkpointing=large and not sharing, whole_groups=sharing
        ),
        train_dataset=Dataset.from_dict({"prompt": [task for batch in batches for task in batch]}),
        peft_config=None if start else lora_config(config),
        rollout_func=rollout_by_first(rollout),
        callbacks=[FirstWorkerCallback(callback) for callback in callbacks],
    )
    save_optimizer(learner)
    learner.remove_callback(PrinterCallback)  # each step is logged to the control database
    learner.use_vllm = True
    learner.vllm_generation = EngineSeat(lambda: by_first(sync_weights))
    learner._last_loaded_step = -1
    if sharing:
        learner.limits = limits_of(learner.model)
    return learner


def load_base(config: RunConfig) -> Any:
    """The run's base model where it will learn: in its own dtype on a GPU, in float32 without one. Raises RunFailed."""
    accelerated = torch.cuda.is_available()
    dtype = "auto" if accelerated else torch.float32
    if config.shards_weights:
        return load_sharded(config, dtype)
    model = AutoModelForCausalLM.from_pretrained(config.model, dtype=dtype)
    if accelerated:
        model.to("cuda")  # TRL would do it later; what is tried before would take long without
    return model


def shares_prompts(config: RunConfig, model: Any) -> bool:
    """Whether the run forwards a group's prompt once, and says why not where it should. Raises RunFailed."""
    if config.shared_prompt is SharedPrompt.OFF:
        return False
    reason = NO_SHARED_PROMPTS if is_sharded(model) else refusal(model)
    if getattr(model.config, "output_router_logits", False):
        reason = "its load-balancing loss is over each reply's prompt"
    if reason and config.shared_prompt is SharedPrompt.ON:
        raise RunFailed(
            f"shared_prompt is on, but {config.model} cannot share prompts: {reason}. Set it to auto or off"
        )
    if reason:
        log.warning("every reply's prompt is forwarded anew, %s cannot share them: %s", config.model, reason)
    return not reason


def execution_reward(**columns: Any) -> list[float | None]:
    """The verifier's rewards, as the rollout function passed them on."""
    rewards: list[float | None] = columns[REWARD_COLUMN]
    return rewards
