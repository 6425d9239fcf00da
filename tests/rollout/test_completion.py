"""The engine's answer, read strictly."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rollout.worker.completion import CompletionFault, GroupReading, check_answer, request_body, thought
from services.rollout.worker.groups import Draw, FailureReason, GroupRequest, SandboxSpec
from shared.contracts.inference import ADAPTER_DIGEST_HEADER, SERVED_MODEL_HEADER
from shared.contracts.rollout import Message
from shared.contracts.verifier import FinishReason, Profile

MODEL = "night-s3-aaaaaaaa"
HEADERS = {SERVED_MODEL_HEADER: MODEL, ADAPTER_DIGEST_HEADER: "a" * 64}


def group(indices: tuple[int, ...] = (0, 1), max_tokens: int = 64) -> GroupRequest:
    return GroupRequest(
        sampling_id="one",
        task_id="t2s_1",
        sample_indices=indices,
        messages=(Message(role="system", content="s"), Message(role="user", content="q")),
        draw=Draw(temperature=1.0, top_p=1.0, max_tokens=max_tokens, thinking=True),
        served_model=MODEL,
        adapter_digest="a" * 64,
        sandbox=SandboxSpec("rollout-1", "one", "shop"),
        profile=Profile.STANDARD,
        order_matters=False,
        gold="SELECT secret",
    )


def chunk(index: int, ids: list[int] | None, finish: str | None = None, text: str = "", **delta: Any) -> bytes:
    choice = {
        "index": index,
        "delta": {"content": text, **delta},
        "logprobs": {"content": [{"logprob": -0.1 * token} for token in ([1] if ids is None else ids)]},
        "finish_reason": finish,
        "token_ids": ids,
    }
    return json.dumps({"model": MODEL, "choices": [choice]}).encode()


def roles(n: int, prompt: list[int] | None = None) -> list[bytes]:
    """How vLLM begins: a chunk a reply, with the prompt's ids."""
    ids = [5, 6] if prompt is None else prompt
    choices = [{"index": index, "delta": {"role": "assistant", "content": ""}} for index in range(n)]
    return [json.dumps({"model": MODEL, "choices": [c], "prompt_token_ids": ids}).encode() for c in choices]


def read(*events: bytes, n: int = 2) -> GroupReading:
    reading = GroupReading(group(tuple(range(n))))
    for event in events:
        reading.add(event)
    return reading


def test_replies_are_joined_from_their_chunks_with_ids_and_logprobs() -> None:
    found = read(
        *roles(2),
        chunk(1, [3], text="re"),
        chunk(0, [1, 2], "length", text="reply 0"),
        chunk(1, [4], "stop", text="ply 1"),
    )
    assert found.prompt_token_ids == [5, 6]
    assert [(found.ended[place].reply, found.ended[place].token_ids) for place in (0, 1)] == [
        ("reply 0", [1, 2]),
        ("reply 1", [3, 4]),
    ]
    assert found.ended[1].logprobs == pytest.approx([-0.3, -0.4])
    assert [found.ended[place].finish_reason for place in (0, 1)] == [FinishReason.LENGTH, FinishReason.STOP]
    assert found.shortfall() is None


def test_a_reply_that_ends_at_once_is_the_policys_own() -> None:
    found = read(*roles(1), chunk(0, [9], "stop", text=""), n=1)
    assert (found.ended[0].reply, found.ended[0].token_ids, found.shortfall()) == ("", [9], None)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([chunk(1, [3], "abort", text="SELECT")], FailureReason.ENGINE_ABORTED),
        ([chunk(1, [3], "repetition", text="SELECT")], FailureReason.ENGINE_ABORTED),
        ([], FailureReason.EMPTY_REPLY),
        ([chunk(1, [], "stop")], FailureReason.EMPTY_REPLY),
        ([chunk(1, [3], text="SEL")], FailureReason.ENGINE_ERROR),
        ([b'{"error": {"message": "CUDA out of memory", "code": 500}}'], FailureReason.ENGINE_ERROR),
    ],
)
def test_what_the_engine_did_not_finish_is_missing_and_the_other_replies_are_kept(
    events: list[bytes], reason: FailureReason
) -> None:
    found = read(*roles(2), chunk(0, [1, 2], "stop", text="kept"), *events)
    shortfall = found.shortfall()
    assert shortfall is not None
    assert shortfall.reason is reason
    assert {place: reply.reply for place, reply in found.ended.items()} == {0: "kept"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        HEADERS | {SERVED_MODEL_HEADER: "base"},
        HEADERS | {ADAPTER_DIGEST_HEADER: "base"},
        HEADERS | {ADAPTER_DIGEST_HEADER: "b" * 64},
    ],
)
def test_an_answer_of_another_adapter_is_refused_before_it_is_read(headers: dict[str, str]) -> None:
    with pytest.raises(CompletionFault) as fault:
        check_answer(group(), {"content-type": "text/event-stream; charset=utf-8"} | headers)
    assert fault.value.reason is FailureReason.ADAPTER_MISMATCH


def test_an_event_of_another_model_refuses_what_came_before_it_too() -> None:
    with pytest.raises(CompletionFault) as fault:
        read(*roles(2), chunk(0, [1], "stop"), chunk(1, [1], "stop").replace(MODEL.encode(), b"base"))
    assert fault.value.reason is FailureReason.ADAPTER_MISMATCH


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([b"<html>not found</html>"], "no chat completion chunk"),
        ([*roles(2), chunk(0, None, "stop", text="x")], "no log-probability for each token"),
        ([*roles(2), chunk(0, [1], reasoning="hm")], "reasoning and tool parsers"),
        ([*roles(2), chunk(2, [1])], "was not asked for"),
        ([*roles(2), chunk(0, [1], "stop"), chunk(0, [1], "stop")], "was not asked for, or had ended"),
        ([*roles(2, prompt=[]), chunk(0, [1], "stop")], "no prompt token ids"),
    ],
)
def test_an_answer_that_lacks_something_is_an_engine_error(events: list[bytes], says: str) -> None:
    with pytest.raises(CompletionFault, match=says) as fault:
        read(*events)
    assert fault.value.reason is FailureReason.ENGINE_ERROR


def test_an_endpoint_that_answers_a_web_page_is_an_engine_error() -> None:
    with pytest.raises(CompletionFault, match="text/html, not an event stream") as fault:
        check_answer(group(), HEADERS | {"content-type": "text/html"})
    assert fault.value.reason is FailureReason.ENGINE_ERROR


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4), st.randoms())
def test_however_chunks_interleave_each_reply_is_whole(replies: list[list[int]], order: random.Random) -> None:
    waiting = [
        [(place, token, at == len(ids) - 1) for at, token in enumerate(ids)] for place, ids in enumerate(replies)
    ]
    events = roles(len(replies))
    while any(waiting):
        place, token, last = order.choice([queue for queue in waiting if queue]).pop(0)
        events.append(chunk(place, [token], "stop" if last else None, text=str(token)))
    found = read(*events, n=len(replies))
    assert [found.ended[place].token_ids for place in range(len(replies))] == replies
    assert [found.ended[place].reply for place in range(len(replies))] == ["".join(map(str, ids)) for ids in replies]


def test_the_gold_is_in_no_request_and_in_no_printed_form() -> None:
    assert "secret" not in json.dumps(request_body(group())) + repr(group())


def test_a_request_may_take_five_minutes_or_a_quarter_second_a_token() -> None:
    assert group(max_tokens=64).draw.timeout_seconds == 300
    assert group(max_tokens=4096).draw.timeout_seconds == 1024


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("SELECT 1", False),
        ("<think>\n\n</think>\nSELECT 1", False),
        ("<think>the joins</think>SELECT 1", True),
        ("the joins</think>SELECT 1", True),
        ("<think>cut off", True),
        ("\n</think>SELECT 1", False),
    ],
)
def test_a_reply_thought_when_its_thinking_block_holds_something(reply: str, expected: bool) -> None:
    assert thought(reply) is expected
