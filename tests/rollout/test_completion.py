"""The engine's answer, read strictly."""

import json
from typing import Any

import pytest

from services.rollout.completion import CompletionFault, read_completion, request_body, thought
from services.rollout.groups import Draw, FailureReason, GroupRequest, SandboxSpec
from shared.contracts.inference import ADAPTER_DIGEST_HEADER, SERVED_MODEL_HEADER
from shared.contracts.rollout import Message
from shared.contracts.verifier import FinishReason, Profile

HEADERS = {SERVED_MODEL_HEADER: "night-s3-aaaaaaaa", ADAPTER_DIGEST_HEADER: "a" * 64}


def group(
    indices: tuple[int, ...] = (0, 1), seed: int = 0, task_id: str = "t2s_1", max_tokens: int = 64
) -> GroupRequest:
    return GroupRequest(
        sampling_id="one",
        task_id="t2s_1",
        sample_indices=(0, 1),
        messages=(Message(role="system", content="s"), Message(role="user", content="q")),
        draw=Draw(temperature=1.0, top_p=1.0, max_tokens=max_tokens, thinking=True),
        served_model="night-s3-aaaaaaaa",
        adapter_digest="a" * 64,
        sandbox=SandboxSpec("rollout-1", "one", "shop"),
        profile=Profile.STANDARD,
        order_matters=False,
        gold="SELECT secret",
    )


def choice(index: int, ids: list[int] | None, finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": f"reply {index}", **message},
        "logprobs": {"content": [{"logprob": -0.1 * token} for token in ids or [1]]},
        "finish_reason": finish,
        "token_ids": ids,
    }


def answer(*choices: dict[str, Any], model: str = "night-s3-aaaaaaaa", prompt: list[int] | None = None) -> bytes:
    return json.dumps({"model": model, "choices": choices, "prompt_token_ids": prompt or [5, 6]}).encode()


def test_replies_come_in_the_order_of_their_index_with_ids_and_logprobs() -> None:
    found = read_completion(group(), HEADERS, answer(choice(1, [3], "length"), choice(0, [1, 2], "eos_or_so")))
    assert found.prompt_token_ids == [5, 6]
    assert [reply.reply for reply in found.choices] == ["reply 0", "reply 1"]
    assert [reply.token_ids for reply in found.choices] == [[1, 2], [3]]
    assert found.choices[0].logprobs == pytest.approx([-0.1, -0.2])
    assert [reply.finish_reason for reply in found.choices] == [FinishReason.ABORT, FinishReason.LENGTH]


@pytest.mark.parametrize(
    ("headers", "model"),
    [
        ({}, "night-s3-aaaaaaaa"),
        (HEADERS, "base"),
        (HEADERS | {SERVED_MODEL_HEADER: "base"}, "night-s3-aaaaaaaa"),
        (HEADERS | {ADAPTER_DIGEST_HEADER: "base"}, "night-s3-aaaaaaaa"),
        (HEADERS | {ADAPTER_DIGEST_HEADER: "b" * 64}, "night-s3-aaaaaaaa"),
    ],
)
def test_an_answer_of_another_adapter_is_refused(headers: dict[str, str], model: str) -> None:
    with pytest.raises(CompletionFault) as fault:
        read_completion(group(), headers, answer(choice(0, [1]), choice(1, [1]), model=model))
    assert fault.value.reason is FailureReason.ADAPTER_MISMATCH


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<html>not found</html>", "no chat completion"),
        (answer(choice(0, [1])), "asked for 2 replies"),
        (answer(choice(0, [1]), choice(1, None)), "no log-probability for each token"),
        (answer(choice(0, [1]), choice(1, [1], reasoning="hm")), "reasoning and tool parsers"),
    ],
)
def test_an_answer_that_lacks_something_is_an_engine_error(content: bytes, says: str) -> None:
    with pytest.raises(CompletionFault, match=says) as fault:
        read_completion(group(), HEADERS, content)
    assert fault.value.reason is FailureReason.ENGINE_ERROR


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
