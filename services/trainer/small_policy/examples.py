"""Supervised examples as token ids, and batches of about equal lengths."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from shared.contracts.rollout import Message
from shared.contracts.tasks import PrivilegedTask

IGNORED = -100
"""Label of a token that carries no loss."""


@dataclass(frozen=True)
class Example:
    """One prompt with the reply to learn, as token ids; `reply` ends with the end token."""

    prompt: list[int]
    reply: list[int]

    @property
    def tokens(self) -> int:
        """Prompt and reply together."""
        return len(self.prompt) + len(self.reply)


def reference_of(task: PrivilegedTask) -> str:
    """The gold to imitate: the first, where several are acceptable."""
    reference = task.privileged.reference
    return reference if isinstance(reference, str) else reference[0]


def prompt_ids(tokenizer: Any, messages: Sequence[Message], *, thinking: bool = False) -> list[int]:
    """The ids an engine sees for these messages: the chat template with the assistant's turn opened."""
    rendered = [message.model_dump() for message in messages]
    ids: list[int] = tokenizer.apply_chat_template(
        rendered, add_generation_prompt=True, return_dict=False, enable_thinking=thinking
    )
    return ids


def reply_ids(tokenizer: Any, reply: str) -> list[int]:
    """The reply's ids with the end token."""
    ids: list[int] = tokenizer.encode(reply, add_special_tokens=False)
    return [*ids, tokenizer.eos_token_id]


Epoch = Callable[[Random], list[Example]]
"""One epoch's examples; each call may give them other literals."""


@dataclass(frozen=True)
class Batch:
    """Right-padded examples. Each tensor is int64 of shape (examples, longest)."""

    input_ids: torch.Tensor
    labels: torch.Tensor


def collate(examples: Sequence[Example], pad: int) -> Batch:
    """Loss on the reply only."""
    longest = max(example.tokens for example in examples)
    input_ids = torch.full((len(examples), longest), pad)
    labels = torch.full_like(input_ids, IGNORED)
    for row, example in enumerate(examples):
        input_ids[row, : example.tokens] = torch.tensor(example.prompt + example.reply)
        labels[row, len(example.prompt) : example.tokens] = torch.tensor(example.reply)
    return Batch(input_ids, labels)


def batches(epoch: Epoch, size: int, pad: int, rng: Random) -> Iterator[Batch]:
    """Endless epochs of shuffled batches; within one, lengths are close, so that little padding is computed."""
    while True:
        order = sorted(epoch(rng), key=lambda example: example.tokens + rng.random() * LENGTH_JITTER_TOKENS)
        chunks = [order[start : start + size] for start in range(0, len(order), size)]
        rng.shuffle(chunks)
        for chunk in chunks:
            yield collate(chunk, pad)


LENGTH_JITTER_TOKENS = 12
"""Spread of the sort key: batches change between epochs at little cost in padding."""
