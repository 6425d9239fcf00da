"""A rollout worker's request on a real vLLM through the gateway: what is streamed is what would have been answered."""

import asyncio
import contextlib
import time

import pytest

from services.rollout.worker.completion import GroupReading, request_body
from services.rollout.worker.generation import Part, generate
from services.rollout.worker.groups import Draw, Failed, FailureReason, GroupRequest, SandboxSpec
from shared.contracts.rollout import Message
from shared.contracts.verifier import Profile
from shared.ids import BASE_DIGEST
from tests.inference.support import Gateway

N = 4


def group(max_tokens: int) -> GroupRequest:
    return GroupRequest(
        sampling_id="one",
        task_id="t2s_1",
        sample_indices=tuple(range(N)),
        messages=(Message(role="user", content="how many orders per country"),),
        draw=Draw(temperature=1.0, top_p=1.0, max_tokens=max_tokens, thinking=False),
        served_model="base",
        adapter_digest=BASE_DIGEST,
        sandbox=SandboxSpec("s", "one", "shop"),
        profile=Profile.STANDARD,
        order_matters=False,
        gold="SELECT 1",
    )


async def test_a_streamed_group_has_the_replies_ids_and_logprobs_of_the_whole_answer(gateway: Gateway) -> None:
    request = group(max_tokens=48)
    body = request_body(request) | {"seed": 3}  # so that both draw alike
    async with gateway.client() as client:
        whole = (await client.chat(body | {"stream": False}, 60.0)).json()
        reading, events = GroupReading(request), 0
        async with client.chat_stream(body) as stream:
            async for data in stream.events:
                events += 1
                if data != b"[DONE]":
                    reading.add(data)
    assert reading.shortfall() is None
    assert reading.prompt_token_ids == whole["prompt_token_ids"]
    assert events <= 3 * N + 1  # roles, first tokens, ends: not a chunk a token
    for choice in whole["choices"]:
        reply = reading.ended[choice["index"]]
        assert (reply.reply, reply.token_ids) == (choice["message"]["content"], choice["token_ids"])
        assert reply.logprobs == pytest.approx([t["logprob"] for t in choice["logprobs"]["content"]], abs=1e-4)
        assert reply.finish_reason == choice["finish_reason"]


async def test_a_group_that_is_cut_frees_the_engine(gateway: Gateway) -> None:
    request = group(max_tokens=1900)
    cut = asyncio.Event()
    async with gateway.client() as client:

        async def running() -> int:
            return (await client.pressure()).running

        async def outcomes() -> list[Part | Failed]:
            async with contextlib.aclosing(generate(request, client, cut)) as parts:
                return [part async for part in parts]

        asking = asyncio.create_task(outcomes())
        deadline = time.monotonic() + 30
        while not await running():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        cut.set()
        found = await asking
        while await running():
            assert time.monotonic() < deadline, "the engine goes on"
            await asyncio.sleep(0.1)
    assert isinstance(found[-1], Failed)
    assert found[-1].reason is FailureReason.STRAGGLER
