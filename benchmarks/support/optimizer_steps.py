"""One optimizer step on samples at hand, ours and stock TRL's, with the same model, batch, loss and correction."""

import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, TrainerCallback

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from services.trainer.learning.learner import build_learner
from services.trainer.learning.settings import lora_config
from shared.contracts.run_config import RunConfig
from tests.trainer.stock import stock_trainer


@dataclass(frozen=True)
class Shape:
    """A batch of one group; tokens."""

    prompt: int
    group: int
    completion: int

    @property
    def tokens(self) -> int:
        """Of the plain batch: each reply with its prompt."""
        return self.group * (self.prompt + self.completion)


@dataclass(frozen=True)
class Side:
    """One way to do the step."""

    name: str
    micro_batch: int = 0
    """Rows in one forward of stock TRL; 0: ours."""
    checkpointing: bool = False
    corrected: bool = True
    """Whether stock TRL runs the importance correction, which costs it a forward."""


@dataclass(frozen=True)
class Seconds:
    """What a step took."""

    wall: float
    cpu: float
    """Of all threads: what the wall would show, times the threads, were nobody else on the machine."""


class StepClock(TrainerCallback):  # type: ignore[misc]
    """From the samples' arrival to the end of the step."""

    def start(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.took = Seconds(time.perf_counter() - self._wall, time.process_time() - self._cpu)


class Stepper:
    """One side, ready to step, with the model in `folder`/model."""

    def __init__(self, side: Side, folder: Path, shape: Shape) -> None:
        self._clock = StepClock()
        self._columns = samples(shape)
        model = folder / "model"
        config = RunConfig(
            domain="shop",
            model=str(model),
            band_id="b",
            steps=1,
            prompts_per_step=1,
            k=shape.group,
            max_tokens=shape.completion,
        )
        accelerated = torch.cuda.is_available()
        if side.micro_batch == 0:
            self._trainer: Any = build_learner(
                config, folder / "ours", [["p"]], lambda *_: self._arrive(), lambda: None, [self._clock]
            )
            self._trainer.args.save_strategy = "no"
        else:
            self._trainer = stock_trainer(
                AutoModelForCausalLM.from_pretrained(model, dtype="auto" if accelerated else torch.float32),
                model,
                folder / "stock",
                lambda *_: self._arrive(),
                [self._clock],
                corrected=side.corrected,
                peft_config=lora_config(config),
                max_steps=1,
                num_generations=shape.group,
                max_completion_length=shape.completion,
                per_device_train_batch_size=side.micro_batch,
                gradient_accumulation_steps=shape.group // side.micro_batch,
                gradient_checkpointing=side.checkpointing,
                vllm_importance_sampling_mode="token_truncate",
                vllm_importance_sampling_clip_max=config.importance_cap,
                vllm_importance_sampling_clip_min=None,
                epsilon_high=config.epsilon_high,
                use_cpu=not accelerated,
                bf16=accelerated,
            )

    def step(self) -> Seconds:
        """Do one."""
        self._trainer.train()
        return self._clock.took

    def _arrive(self) -> dict[str, list[Any]]:
        self._clock.start()
        return self._columns


def samples(shape: Shape) -> dict[str, list[Any]]:
    """One group; token ids at random, the last one the end of turn."""
    draw = random.Random(0)

    def ids(count: int) -> list[int]:
        return [draw.randrange(10, 400) for _ in range(count)]

    prompt = ids(shape.prompt)
    return {
        "prompt_ids": [prompt] * shape.group,
        "completion_ids": [[*ids(shape.completion - 1), 2] for _ in range(shape.group)],
        "logprobs": [[-6.0] * shape.completion] * shape.group,
        "env_mask": [[1] * shape.completion] * shape.group,
        "execution_reward": [float(row % 2) for row in range(shape.group)],
    }
