"""Pass rates of the policy as it stands: sampled here, judged by the verifier."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from services.trainer.small_policy.generate import Draw, sample
from services.trainer.small_policy.settings import Recipe
from shared.clients.verifier import VerifierClient
from shared.contracts.policy import SliceMeasure
from shared.contracts.tasks import PrivilegedTask
from shared.contracts.verifier import FinishReason, Status, VerifyItem, VerifyRequest
from shared.statistics import bootstrap_mean, pass_at_k

Judge = Callable[[list[VerifyItem]], Awaitable[list[Status]]]
"""Verdicts in the order of the items."""


class MeasureFailed(RuntimeError):
    """Too few verdicts to know where the policy stands."""


@dataclass(frozen=True)
class Asked:
    """One task of the slice and the prompt it is asked with, as token ids."""

    task: PrivilegedTask
    prompt: list[int]


def judge_through(verifier: VerifierClient, sandbox_id: str) -> Judge:
    """A judge that asks the verifier service."""

    async def judge(items: list[VerifyItem]) -> list[Status]:
        answer = await verifier.verify(sandbox_id, VerifyRequest(items=items))
        return [verdict.status for verdict in answer.verdicts]

    return judge


async def measure(
    model: Any,
    tokenizer: Any,
    slice_: Sequence[Asked],
    recipe: Recipe,
    max_tokens: int,
    step: int,
    seed: int,
    judge: Judge,
) -> SliceMeasure:
    """Sample `recipe.k` replies a task and have them judged. Unscorable replies leave the rates; raises MeasureFailed
    when that leaves no task with at least one verdict."""
    draw = Draw(recipe.temperature, recipe.top_p, max_tokens)
    generator = torch.Generator().manual_seed(seed)
    prompts = [one.prompt for one in slice_]
    model.eval()
    replies = sample(model, prompts, recipe.k, draw, tokenizer.pad_token_id, tokenizer.eos_token_id, generator)
    items = [
        VerifyItem(
            reply=tokenizer.decode(ids, skip_special_tokens=True),
            finish_reason=FinishReason.LENGTH if len(ids) == max_tokens else FinishReason.STOP,
            gold=one.task.privileged.reference,
            order_matters=one.task.order_matters,
        )
        for one, group in zip(slice_, replies, strict=True)
        for ids in group
    ]
    statuses = await judge(items)
    groups = [statuses[start : start + recipe.k] for start in range(0, len(statuses), recipe.k)]
    return summarise(slice_, groups, recipe, step)


def summarise(slice_: Sequence[Asked], groups: Sequence[Sequence[Status]], recipe: Recipe, step: int) -> SliceMeasure:
    """Pass rates from the verdicts, one group a task. Raises MeasureFailed when there are none."""
    ones, ks = [], []
    by_archetype: dict[str, list[float]] = defaultdict(list)
    for one, group in zip(slice_, groups, strict=True):
        scored = [status for status in group if status is not Status.UNSCORABLE]
        if not scored:
            continue
        passed = scored.count(Status.MATCH)
        ones.append(passed / len(scored))
        ks.append(pass_at_k(len(scored), passed, len(scored)))
        by_archetype[one.task.archetype].append(ones[-1])
    if not ones:
        raise MeasureFailed(
            f"the verifier scored none of {len(slice_)} tasks at step {step}: see its log; nothing was saved, "
            "the same command starts again"
        )
    return SliceMeasure(
        step=step,
        tasks=len(ones),
        k=recipe.k,
        temperature=recipe.temperature,
        top_p=recipe.top_p,
        pass_1=bootstrap_mean(ones),
        pass_k=bootstrap_mean(ks),
        by_archetype={name: sum(values) / len(values) for name, values in sorted(by_archetype.items())},
    )
