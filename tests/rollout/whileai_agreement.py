"""One comparison, run against two sets of services: what whileai's own calls say, and what our own sampling says."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import whileai
from fastapi import FastAPI, Request
from whileai.simulations import run_judge
from whileai.simulations.score.passat import pass_at

from shared.clients.rollout import RolloutClient
from shared.contracts.rollout import ModelEndpoint, Regime, SamplingParameters, SamplingRequest, SamplingState
from shared.contracts.tasks import PrivilegedTask
from shared.domain import find_bundle, system_prompt
from shared.settings import REPOSITORY
from shared.whileai import GatewayAgent, SqlVerifier, from_whileai, pinned_tasks
from tests.rollout.test_samplings import ended
from tests.serving import served

TASKS, K = 20, 4


@dataclass(frozen=True)
class Services:
    """Where they are, and the tokens for them."""

    gateway: str
    verifier: str
    gateway_token: str
    verifier_token: str
    model: str
    regime: Regime
    domain: str = "shop"


def simulated(services: Services, tasks: Sequence[PrivilegedTask], parameters: SamplingParameters) -> Any:
    """whileai's rows: `simulate` with the tasks pinned, one turn and no writer, then `run_judge`."""
    prompt = system_prompt(find_bundle(services.domain, [REPOSITORY / "domains"]), services.regime)
    with (
        GatewayAgent(services.gateway, services.gateway_token, services.model, prompt, parameters) as agent,
        SqlVerifier(services.verifier, services.verifier_token, services.domain, tasks) as verifier,
    ):
        data = whileai.simulate(
            agent,
            tasks=pinned_tasks(tasks),
            repeats=K,
            repeat_policy="fixed",
            mode="rl",
            budget=len(tasks) * K,
            simulator=False,
            concurrency=8,
        )
        return run_judge(data, verifier).rows


def replaying(rows: Sequence[dict[str, Any]]) -> FastAPI:
    """An OpenAI-compatible endpoint that gives, for a question, the replies whileai recorded."""
    replies: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        replies[row["prompt"]].append(row)
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> dict[str, Any]:
        body = await request.json()
        choices = [
            {
                "index": at,
                "message": {"role": "assistant", "content": row["final_text"]},
                "finish_reason": row["finish_reason"],
            }
            for at, row in enumerate(replies[body["messages"][-1]["content"].strip()])
        ]
        usage = {"prompt_tokens": 1, "completion_tokens": len(choices), "total_tokens": len(choices) + 1}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
        return head | {"choices": choices, "usage": usage}

    return app


async def verdicts_agree(services: Services, tasks: Sequence[PrivilegedTask], client: RolloutClient) -> Counter[str]:
    """Statuses of the replies, after asserting that both sides say the same of each and in sum."""
    parameters = SamplingParameters(k=K, max_tokens=64, temperature=1.0, top_p=1.0)
    theirs = await asyncio.to_thread(simulated, services, tasks, parameters)
    assert Counter(row["prompt"] for row in theirs) == {task.question.strip(): K for task in tasks}
    assert {row["judge_name"] for row in theirs} == {"sqlclimb"}
    assert not any(gold in str(theirs) for task in tasks for gold in task.privileged.golds if len(gold) > 40)
    with served(replaying(theirs)) as url:
        request = SamplingRequest(
            sampling_id="whileai-replayed",
            domain=services.domain,
            endpoint=ModelEndpoint(url=f"{url}/v1", model="replayed"),
            regime=services.regime,
            parameters=parameters,
            task_ids=[task.id for task in tasks],
        )
        await client.start(request)
        done = await ended(client, request.sampling_id)
        assert done.state is SamplingState.DONE, done
        ours = [row async for row in client.rows(request.sampling_id)]
        line = (await client.report(request.sampling_id)).lines[0]
    said = Counter((row.task_id, row.reply, str(row.status), row.reward) for row in ours)
    judged = Counter(
        (reply.task_id, reply.reply, str(row["judge_meta"]["status"]), row["judge_meta"]["shaped_reward"])
        for row in theirs
        for reply in [from_whileai(row)]
    )
    assert sum(said.values()) == len(tasks) * K
    assert said == judged
    assert pass_at(theirs).pass_at_1 == pytest.approx(line.pass_at_1.value, abs=1e-9)
    return Counter(str(row.status) for row in ours)
