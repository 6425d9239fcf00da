"""The supervised loop."""

import math
import time
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from services.trainer.small_policy.examples import Batch, Epoch, batches
from services.trainer.small_policy.settings import Recipe

GRADIENT_CLIP = 1.0
PROGRESS_SECONDS = 8.0

Report = Callable[[str], None]


class Learner:
    """Constant learning rates after a warm-up, and a running average of the weights.

    Muon for the layers' matrices (it needs half the steps of AdamW here), AdamW for the rest. The average is the
    policy: it is worth a decayed learning rate without knowing in advance when training stops.
    """

    def __init__(self, model: Any, recipe: Recipe, epoch: Epoch, pad: int, seed: int) -> None:
        self._model = model
        self._averaged = AveragedModel(model, avg_fn=lambda mean, new, _: torch.lerp(new, mean, recipe.averaging))
        self._source = batches(epoch, recipe.batch, pad, Random(seed))
        matrices, others = split_parameters(model)
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=recipe.matrix_learning_rate, weight_decay=recipe.weight_decay),
            torch.optim.AdamW(others, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self._schedules = [
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / recipe.warmup_steps))
            for optimizer in self._optimizers
        ]
        self.step = 0
        self.loss = math.nan
        """Mean negative log-likelihood of the last batch's reply tokens (nats)."""

    @property
    def policy(self) -> Any:
        """The model with averaged weights."""
        return self._averaged.module

    def advance(self, steps: int, report: Report) -> None:
        """That many optimizer steps, with a progress line at least every few seconds."""
        self._model.train()
        said = time.monotonic()
        for _ in range(steps):
            loss = reply_loss(self._model, next(self._source))
            self._model.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), GRADIENT_CLIP)
            for optimizer, schedule in zip(self._optimizers, self._schedules, strict=True):
                optimizer.step()
                schedule.step()
            self._averaged.update_parameters(self._model)
            self.step += 1
            self.loss = loss.item()
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                report(f"step {self.step}  loss {self.loss:.3f}")


def split_parameters(model: Any) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """The layers' weight matrices, and everything else: embeddings and norms."""
    matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    chosen = {id(weight) for weight in matrices}
    return matrices, [weight for weight in model.parameters() if id(weight) not in chosen]


def reply_loss(model: Any, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the reply tokens.

    Padding stands on the right, where causal attention keeps it from the tokens that count: no mask is needed.
    """
    hidden = model.model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
    wanted = batch.labels[:, 1:] >= 0
    logits = model.lm_head(hidden[:, :-1][wanted])  # at reply positions only
    return torch.nn.functional.cross_entropy(logits, batch.labels[:, 1:][wanted])
