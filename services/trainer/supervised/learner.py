"""TRL's SFT trainer over examples that are tokenized already: loss on replies only, one mean over a step's tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from services.trainer.job.workers import FirstWorkerCallback
from services.trainer.learning.learner import load_base
from services.trainer.learning.settings import common_settings, lora_config
from services.trainer.learning.sizes import CHECKPOINTING_PARAMETERS, micro_batch_rows
from services.trainer.small_policy.examples import IGNORED, Example
from shared.contracts.run_config import RunConfig


class SftLearner(SFTTrainer):  # type: ignore[misc]  # TRL ships no types
    """SFT as TRL does it."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """No model card in every checkpoint."""


def build_learner(
    config: RunConfig,
    folder: Path,
    steps: Sequence[Sequence[Example]],
    callbacks: Sequence[TrainerCallback],
    start: Path | None = None,
) -> SftLearner:
    """A learner of `steps`, a checkpoint into `folder` after each; `start`: folder of the adapter that goes on.

    With several workers each learns its share of a step, and only the first one runs the callbacks.
    """
    model = load_base(config)
    checkpointing = model.num_parameters() >= CHECKPOINTING_PARAMETERS
    if start is not None:
        model = PeftModel.from_pretrained(model, str(start), is_trainable=True)
    longest = max(example.tokens for step in steps for example in step)
    learner = SftLearner(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(config.model),
        args=sft_config(config, folder, longest, checkpointing=checkpointing),
        train_dataset=dataset(steps),
        peft_config=None if start else lora_config(config),
        callbacks=[FirstWorkerCallback(callback) for callback in callbacks],
    )
    learner.remove_callback(PrinterCallback)  # each step is logged to the control database
    return learner


def sft_config(config: RunConfig, folder: Path, longest: int, *, checkpointing: bool) -> SFTConfig:
    """TRL's settings; `longest`: tokens of the longest example. Rows are shared out among `config.workers`."""
    rows = config.prompts_per_step // config.workers
    micro_batch = micro_batch_rows(rows, longest, at_most=config.micro_batch)
    return SFTConfig(
        **common_settings(config, folder, accelerated=torch.cuda.is_available(), checkpointing=checkpointing),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=rows // micro_batch,
        max_length=None,  # what is too long was left out
        packing=False,
        loss_type="nll",
        average_tokens_across_devices=True,
        train_sampling_strategy="sequential",  # the order of steps is ours
        dataset_kwargs={"skip_prepare_dataset": True},  # golds must not pass through a cache on disk
    )


def dataset(steps: Sequence[Sequence[Example]]) -> Dataset:
    """The steps' examples in order, in memory; an example that comes again is kept once."""
    places: dict[int, int] = {}
    distinct: list[Example] = []
    order = []
    for example in (example for step in steps for example in step):
        if id(example) not in places:
            places[id(example)] = len(distinct)
            distinct.append(example)
        order.append(places[id(example)])
    rows = Dataset.from_dict(
        {
            "input_ids": [example.prompt + example.reply for example in distinct],
            "labels": [[IGNORED] * len(example.prompt) + example.reply for example in distinct],
        }
    )
    return rows.select(order)
