"""Stock TRL on samples from outside: what our learner is compared with, in exactness and in speed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback

from services.trainer.learning.learner import GRPOTrainer  # TRL's own; imported there after it has been told of no vLLM
from services.trainer.learning.settings import GRPOConfig


class StockSeat:
    """Where TRL expects its vLLM: the samples are there, nothing is to be synced."""

    def sync_weights(self) -> None:
        pass


class KeepGradient(TrainerCallback):  # type: ignore[misc]
    """Keeps loss and gradient of the last step; the trainer must not clip."""

    def __init__(self) -> None:
        self.model: Any = None
        self.gradient = torch.zeros(0)
        self.loss = float("nan")

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.gradient = torch.cat(
            [weight.grad.flatten().float().cpu() for weight in self.model.parameters() if weight.grad is not None]
        )

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs and "grad_norm" in logs:
            self.loss = float(logs["loss"])


def stock_trainer(
    model: Any,
    tokenizer_of: Path,
    folder: Path,
    rollout: Callable[[list[str], Any], dict[str, Any]],
    callbacks: list[TrainerCallback],
    corrected: bool = True,
    peft_config: Any = None,
    **settings: Any,
) -> GRPOTrainer:
    """TRL's own trainer on a rollout function's samples, one batch a step; `settings` go to its config.

    `corrected`: as with vLLM, the importance correction runs.
    """
    rows = settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"]
    trainer = GRPOTrainer(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(tokenizer_of, padding_side="left"),
        reward_funcs=lambda **given: given["execution_reward"],
        args=GRPOConfig(
            output_dir=str(folder),
            top_k=0,
            use_vllm=False,
            learning_rate=1e-6,
            disable_dropout=True,
            report_to="none",
            disable_tqdm=True,
            logging_steps=1,
            save_strategy="no",
            dataloader_pin_memory=False,
            **settings,
        ),
        train_dataset=Dataset.from_dict({"prompt": [f"p{row}" for row in range(rows // settings["num_generations"])]}),
        peft_config=peft_config,
        rollout_func=rollout,
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)
    if corrected:
        trainer.use_vllm = True
        trainer.vllm_generation = StockSeat()
        trainer._last_loaded_step = -1
    return trainer
