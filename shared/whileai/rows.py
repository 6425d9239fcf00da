"""Our rows in whileai's row format (version 1), its rows as replies of ours, our tasks as its pinned tasks. Pure.

whileai counts a reward of 0 or 1 and leaves anything between out of pass@1, so a row's reward is whether it matched;
our shaped reward (0.1 for what ran and was wrong) stands in `judge_meta`. No gold crosses: ours never hold one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.contracts.rollout import Row, SamplingRequest
from shared.contracts.tasks import Task
from shared.contracts.verifier import FinishReason, Status
from shared.ids import task_id

SCHEMA_VERSION = "1"
JUDGE = "sqlclimb"

_FINISH = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORT: "error"}
_OURS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


def pinned_tasks(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """What `simulate(tasks=…)` replays: each question as it stands, under our task id, with nothing around it."""
    return [
        {
            "schema_version": SCHEMA_VERSION,
            "scenario_id": task.id,
            "task_id": task.id,
            "prompt": task.question,
            "steps": [],
            "final_text": "",
            "faults": {},
            "writer_model": task.provenance.teacher,
        }
        for task in tasks
    ]


def to_whileai(row: Row, request: SamplingRequest) -> dict[str, Any]:
    """One row; `request` is its sampling's."""
    tokens = len(row.token_ids) if row.reported_tokens is None else row.reported_tokens
    step: dict[str, Any] = {
        "text": row.reply,
        "n_tokens": tokens,
        "truncated": row.finish_reason is FinishReason.LENGTH,
    }
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "task_id": row.task_id,
        "scenario_id": row.task_id,
        "group_id": row.task_id,
        "prompt": row.messages[-1].content,
        "messages": [
            *({"role": message.role, "content": message.content} for message in row.messages),
            {"role": "assistant", "content": row.reply},
        ],
        "steps": [step],
        "final_text": row.reply,
        "rollout_index": row.sample_index,
        "model_version": row.served_model,
        "policy_version": f"{row.served_model}@{row.prompt_hash[:16]}",
        "finish_reason": _FINISH[row.finish_reason],
        "n_tokens": tokens,
        "sampling": {
            "temperature": request.parameters.temperature,
            "top_p": request.parameters.top_p,
            "max_tokens": request.parameters.max_tokens,
            "model": row.served_model,
        },
        "reward": None if row.status is Status.UNSCORABLE else int(row.status is Status.MATCH),
        "reason": row.reason,
        "judge_name": JUDGE,
        "judge_status": "error" if row.status is Status.UNSCORABLE else "ok",
        "judge_meta": {"scorer_kind": "rule", "status": row.status, "shaped_reward": row.reward, "sql": row.sql},
        "lineage": {
            "source": JUDGE,
            "system_prompt_sha": row.prompt_hash,
            "sampling_id": row.sampling_id,
            "row_id": row.row_id,
            "policy": request.policy,
            "adapter_digest": row.adapter_digest,
            "profile": request.profile,
        },
    }
    if row.logprobs:
        step |= {"logprob": sum(row.logprobs), "token_logprobs": row.logprobs}
        found |= {"logprob": sum(row.logprobs), "token_logprobs": row.logprobs}
    return found


@dataclass(frozen=True)
class SampledReply:
    """What a whileai row says that a verdict of ours needs."""

    task_id: str
    reply: str
    finish_reason: FinishReason


def from_whileai(row: Mapping[str, Any]) -> SampledReply:
    """The reply of a rollout row. Raises ValueError, naming what the row lacks.

    The task is the one whose question is the row's prompt: a simulated row's own ids may be of any kind.
    """
    prompt, reply = row.get("prompt"), row.get("final_text")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("the row has no `prompt`: the question that was asked")
    if not isinstance(reply, str):
        raise ValueError("the row has no `final_text`: the reply")
    return SampledReply(task_id(prompt), reply, _OURS.get(str(row.get("finish_reason")), FinishReason.STOP))
