"""One build: tokenizer, examples, then supervised steps until the measured pass@1 stands where GRPO can climb."""

import math
import time
from dataclasses import dataclass
from importlib.metadata import version
from random import Random
from typing import Any

from services.trainer.small_policy.examples import Epoch, Example, prompt_ids, reference_of, reply_ids
from services.trainer.small_policy.learner import Learner, Report
from services.trainer.small_policy.measure import Asked, Judge, measure
from services.trainer.small_policy.model import make_model
from services.trainer.small_policy.settings import Recipe
from services.trainer.small_policy.slips import slip
from services.trainer.small_policy.stopping import stop_reason
from services.trainer.small_policy.tasks import WarmStart, policy_digest, tasks_digest
from services.trainer.small_policy.tokenizer import train_tokenizer
from services.trainer.small_policy.variation import Pair, Variation
from shared.contracts.policy import PolicyCard, SliceMeasure, StopReason
from shared.contracts.rollout import Regime
from shared.domain import Bundle, messages

REGIME = Regime(prompt="question")
REPLY_MARGIN = 1.25
"""Reply budget over the longest gold learned: wrong replies run longer than right ones."""
PROMPT_MARGIN = 1.5
"""Context for prompts over the longest one learned: the holdout's may be longer."""
BLOCK_TOKENS = 128
"""vLLM's CPU cache block: the context is a whole number of them."""


@dataclass(frozen=True)
class Policy:
    """What a build made."""

    card: PolicyCard
    model: Any
    tokenizer: Any


@dataclass(frozen=True)
class Material:
    """Everything the loop reads, as token ids."""

    tokenizer: Any
    epoch: Epoch
    slice: list[Asked]
    max_tokens: int
    context_tokens: int


def prepare(bundle: Bundle, tasks: WarmStart, recipe: Recipe) -> Material:
    """Train the tokenizer on the learned tasks alone and tokenize both halves."""

    def encode(pair: Pair) -> Example:
        prompt = prompt_ids(tokenizer, messages(bundle, REGIME, pair.question))
        return Example(prompt, reply_ids(tokenizer, pair.gold))

    def epoch(rng: Random) -> list[Example]:
        return [encode(slipped(variation.draw(pair, rng), rng)) for pair in pairs]

    def slipped(pair: Pair, rng: Random) -> Pair:
        return Pair(pair.question, slip(pair.gold, rng)) if rng.random() < recipe.slips else pair

    pairs = [Pair(task.question, reference_of(task)) for task in tasks.learn]
    variation = Variation(pairs)
    tokenizer = train_tokenizer(
        (text for pair in pairs for text in (pair.question, pair.gold)), recipe.architecture.vocabulary
    )
    examples = [encode(pair) for pair in pairs]
    slice_ = [Asked(task, prompt_ids(tokenizer, messages(bundle, REGIME, task.question))) for task in tasks.measure]
    max_tokens = 8 * math.ceil(REPLY_MARGIN * max(len(example.reply) for example in examples) / 8)
    longest_prompt = max(len(example.prompt) for example in examples)
    context_tokens = BLOCK_TOKENS * math.ceil((PROMPT_MARGIN * longest_prompt + max_tokens) / BLOCK_TOKENS)
    tokenizer.model_max_length = context_tokens
    return Material(tokenizer, epoch, slice_, max_tokens, context_tokens)


async def build(bundle: Bundle, tasks: WarmStart, recipe: Recipe, seed: int, judge: Judge, report: Report) -> Policy:
    """Train until `stop_reason` says so. Raises MeasureFailed and what the judge raises; writes nothing."""
    started = time.monotonic()
    material = prepare(bundle, tasks, recipe)
    tokenizer = material.tokenizer
    model = make_model(
        recipe.architecture,
        len(tokenizer),
        material.context_tokens,
        tokenizer.pad_token_id,
        tokenizer.eos_token_id,
        seed,
    )
    parameters = sum(weight.numel() for weight in model.parameters())
    report(
        f"small policy: {parameters / 1e6:.1f} M parameters, {len(tokenizer)} tokens, {len(tasks.learn)} examples; "
        f"replies up to {material.max_tokens} tokens, measured on {len(tasks.measure)} unseen train tasks"
    )
    learner = Learner(model, recipe, material.epoch, tokenizer.pad_token_id, seed)
    measures: list[SliceMeasure] = []
    stopped: StopReason | None = None
    while stopped is None:
        ahead = recipe.measure_every if measures else recipe.measure_from
        learner.advance(min(ahead, recipe.maximum_steps - learner.step), report)
        last = await measure(
            learner.policy, tokenizer, material.slice, recipe, material.max_tokens, learner.step, seed, judge
        )
        measures.append(last)
        stopped = stop_reason(measures, recipe.target, recipe.maximum_steps)
        report(
            f"step {learner.step}  loss {learner.loss:.3f}  pass@1 {last.pass_1.value:.2f}  "
            f"pass@{last.k} {last.pass_k.value:.2f}  target {recipe.target:.2f}  {time.monotonic() - started:.0f} s"
        )
    if stopped is StopReason.STEPS:
        report(
            f"WARNING: pass@1 is {last.pass_1.value:.2f} after {learner.step} steps, under the target of "
            f"{recipe.target:.2f}: a weak start; raise `maximum_steps` or author more tasks"
        )
    card = PolicyCard(
        digest=policy_digest(tasks, bundle.digest, recipe, seed),
        domain=bundle.name,
        domain_digest=bundle.digest,
        warm_start_digest=tasks_digest(tasks.learn),
        warm_start_tasks=len(tasks.learn),
        seed=seed,
        regime=REGIME,
        max_tokens=material.max_tokens,
        context_tokens=material.context_tokens,
        vocabulary=len(tokenizer),
        parameters=parameters,
        steps=learner.step,
        seconds=round(time.monotonic() - started, 1),
        stopped=stopped,
        target=recipe.target,
        measured=last,
        versions={name: version(name) for name in ("torch", "transformers", "tokenizers")},
    )
    return Policy(card, learner.policy, tokenizer)
