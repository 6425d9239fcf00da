"""Lessons as token ids, exactly as the engine sees and ends them; what is too long is left out and counted. Pure but
for loading the tokenizer.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from services.trainer.small_policy.examples import Example, prompt_ids, reply_ids
from services.trainer.supervised.lessons import Found, Lesson
from services.trainer.supervised.refusal import unusable
from shared.contracts.planning import DryRun
from shared.contracts.run_config import RunConfig
from shared.contracts.supervision import DropReason


@dataclass(frozen=True)
class Examples:
    """What a run learns from."""

    kept: dict[str, Example]
    """By task id, sorted."""
    tasks: int
    dropped: dict[DropReason, int]
    window: int
    """Tokens that the model takes."""

    @property
    def longest(self) -> int:
        """Tokens of the longest example; 0 without any."""
        return max((example.tokens for example in self.kept.values()), default=0)

    @property
    def digest(self) -> str:
        """SHA-256 over task ids and token ids: a resumed run must go on with the same examples."""
        content = [(task_id, example.prompt, example.reply) for task_id, example in self.kept.items()]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def counts(self, config: RunConfig) -> DryRun:
        """The same in numbers."""
        kept = self.kept.values()
        return DryRun(
            tasks=self.tasks,
            kept=len(kept),
            dropped=self.dropped,
            prompt_tokens=sum(len(example.prompt) for example in kept),
            reply_tokens=sum(len(example.reply) for example in kept),
            longest=self.longest,
            window=self.window,
            passes=config.steps * config.prompts_per_step / len(kept) if kept else 0.0,
        )


@dataclass(frozen=True)
class Encoder:
    """A model's tokenizer and its bounds."""

    model: str
    tokenizer: Any
    thinking: bool
    end_ids: Collection[int]
    """What ends a turn in the engine."""
    window: int
    """Prompt and reply together, in tokens."""

    def encode(self, lesson: Lesson) -> Example:
        """One example. Raises Invalid where this model's engine would have seen or ended it otherwise."""
        try:
            prompt = prompt_ids(self.tokenizer, lesson.messages, thinking=self.thinking)
        except (TemplateError, ValueError) as error:
            raise unusable("model", f"the chat template of {self.model} renders no such prompt: {error}") from error
        if lesson.prompt_ids and lesson.prompt_ids != prompt:
            raise unusable(
                "sft.sampling_id",
                f"task {lesson.task_id} was asked in {len(lesson.prompt_ids)} tokens, {self.model} renders "
                f"{len(prompt)} others: the sampling is of another base model or chat template",
            )
        reply = lesson.reply_ids or reply_ids(self.tokenizer, lesson.reply)
        if reply[-1] not in self.end_ids:
            raise unusable(
                "model",
                f"the reply to task {lesson.task_id} ends in token {reply[-1]}, the end-of-turn ids of {self.model} "
                f"are {sorted(self.end_ids)}: a policy that learns it would not stop",
            )
        return Example(prompt, reply)

    def examples(self, found: Found, max_tokens: int) -> Examples:
        """Every lesson that fits. Raises Invalid."""
        kept: dict[str, Example] = {}
        dropped = Counter(found.dropped)
        for lesson in found.lessons:
            example = self.encode(lesson)
            if len(example.reply) > max_tokens:
                dropped[DropReason.OVER_BUDGET] += 1
            elif example.tokens > self.window:
                dropped[DropReason.OVER_WINDOW] += 1
            else:
                kept[lesson.task_id] = example
        return Examples(kept, found.tasks, {reason: count for reason, count in dropped.items() if count}, self.window)


def open_encoder(config: RunConfig) -> Encoder:
    """The encoder of the run's model. Raises Invalid."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(config.model)
        window = int(AutoConfig.from_pretrained(config.model).get_text_config().max_position_embeddings)
    except (OSError, ValueError, AttributeError) as error:
        raise unusable("model", f"no tokenizer or config of {config.model!r} can be read here: {error}") from error
    return Encoder(config.model, tokenizer, config.regime.thinking, _end_ids(config.model, tokenizer), window)


def _end_ids(model: str, tokenizer: Any) -> set[int]:
    """As vLLM has them: the tokenizer's, and those of the generation config where there is one."""
    try:
        named = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:
        named = None
    return {tokenizer.eos_token_id, *(named if isinstance(named, list) else [] if named is None else [named])}


def refuse_too_few(examples: Examples, config: RunConfig) -> None:
    """Raises Invalid when a step could not be filled with distinct examples."""
    if len(examples.kept) < config.prompts_per_step:
        reasons = ", ".join(f"{reason} {count}" for reason, count in examples.dropped.items()) or "none was left out"
        raise unusable(
            "prompts_per_step",
            f"{len(examples.kept)} of {examples.tasks} tasks give an example ({reasons}), a step takes "
            f"{config.prompts_per_step} distinct ones: sample more, or lower it",
        )
