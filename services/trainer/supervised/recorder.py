"""What a supervised step leaves behind: its figures in the checkpoint's seal, then as GRPO's."""

import time
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments

from services.trainer.job.grounds import Grounds
from services.trainer.job.recorder import StepRecorder
from services.trainer.small_policy.examples import Example

NO_SAMPLES: dict[str, Any] = {
    "reward": 0.0,
    "reward_std": 0.0,
    "zero_variance": 0.0,
    "logprob_gap": 0.0,
    "importance_ratio": 0.0,
    "kl": None,
    "cut": 0.0,
    "unscorable": 0,
}
"""Figures of samples in a step that drew none."""


class SupervisedRecorder(StepRecorder):
    """Keeps checkpoints, published adapters and the log in step."""

    def __init__(self, grounds: Grounds, steps: list[list[Example]], examples: int, digest: str) -> None:
        """`steps`: of the whole run; `examples`: how many there are to pass over; `digest`: theirs."""
        super().__init__(grounds)
        self._steps = steps
        self._examples = examples
        self._digest = digest

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **named: Any,
    ) -> None:
        super().on_log(args, state, control, logs=logs, **named)
        if logs and "mean_token_accuracy" in logs:
            self.now.figures = {"token_accuracy": logs["mean_token_accuracy"], "entropy": logs["entropy"]}

    def kept(self, step: int) -> dict[str, Any]:
        now, learnt = self.now, self._steps[step - 1]
        total = time.monotonic() - now.started
        reply_tokens = sum(len(example.reply) for example in learnt)
        supervised = {
            **now.figures,
            "reply_tokens": reply_tokens,
            "prompt_tokens": sum(len(example.prompt) for example in learnt),
            "passes": sum(map(len, self._steps[:step])) / self._examples,
        }
        figures = {
            **NO_SAMPLES,
            "completion_tokens": reply_tokens / len(learnt),
            "loss": now.loss,
            "grad_norm": now.grad_norm,
            "supervised": supervised,
            "seconds": {"sample": 0.0, "verify": 0.0, "learn": total, "total": total, "generation": 0.0},
        }
        return {"figures": figures, "examples": self._digest}
