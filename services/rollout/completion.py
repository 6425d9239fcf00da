"""The engine's side of a group: the request's body, and its answer read strictly. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from services.rollout.groups import FailureReason, GroupRequest
from shared.contracts.inference import ADAPTER_DIGEST_HEADER, SERVED_MODEL_HEADER
from shared.contracts.verifier import FinishReason

_THINKING = re.compile(r"(?:<think>)?(.*?)(?:</think>|\Z)", re.DOTALL)


_FINISH = {str(reason): reason for reason in FinishReason}


class CompletionFault(Exception):
    """The answer cannot be used as samples of the policy asked for."""

    def __init__(self, reason: FailureReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True)
class Choice:
    """One reply: text, ids, and log-probabilities of equal length."""

    reply: str
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason


@dataclass(frozen=True)
class Completion:
    """A group's replies, in the order of their indices."""

    prompt_token_ids: list[int]
    choices: list[Choice]


class _Answer(BaseModel):
    """The parts of vLLM's chat completion that are read."""

    model_config = ConfigDict(extra="ignore", strict=False)

    class Choice(BaseModel):
        class Message(BaseModel):
            content: str | None = None
            reasoning: str | None = None
            tool_calls: list[Any] | None = None

        class Logprobs(BaseModel):
            class Token(BaseModel):
                logprob: float

            content: list[Token] | None

        index: int
        message: Message
        logprobs: Logprobs | None
        finish_reason: str | None
        token_ids: list[int] | None = None

    model: str
    choices: list[Choice]
    prompt_token_ids: list[int] | None = None


def request_body(request: GroupRequest) -> dict[str, Any]:
    """`POST /v1/chat/completions` for the whole group: one prompt, n replies, so the prompt is computed once.

    No `seed`: vLLM's CPU engine dies of a seeded request whose prefill is split ("CPU Generator does not use offset"),
    and batching makes replies differ in the last bits anyway. Each request draws from the engine's own stream.
    """
    return {
        "model": request.served_model,
        "messages": [message.model_dump() for message in request.messages],
        "n": len(request.sample_indices),
        "temperature": request.draw.temperature,
        "top_p": request.draw.top_p,
        "top_k": -1,
        "max_tokens": request.draw.max_tokens,
        "logprobs": True,
        "return_token_ids": True,
        "chat_template_kwargs": {"enable_thinking": request.draw.thinking},
    }


def read_completion(request: GroupRequest, headers: Mapping[str, str], content: bytes) -> Completion:
    """The answer to `request_body`. Raises CompletionFault.

    Samples of any other adapter than the one asked for are refused: rows of two adapters never mix.
    """
    try:
        answer = _Answer.model_validate_json(content)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        detail = f"the engine's answer is no chat completion: {where}: {fault['msg']}"
        raise CompletionFault(FailureReason.ENGINE_ERROR, detail) from error
    _check_adapter(request, headers, answer.model)
    if len(answer.choices) != len(request.sample_indices) or answer.prompt_token_ids is None:
        raise CompletionFault(
            FailureReason.ENGINE_ERROR,
            f"asked for {len(request.sample_indices)} replies with token ids, got {len(answer.choices)}"
            + ("" if answer.prompt_token_ids is not None else " without prompt ids"),
        )
    ordered = sorted(answer.choices, key=lambda choice: choice.index)
    return Completion(answer.prompt_token_ids, [_choice(choice) for choice in ordered])


def _check_adapter(request: GroupRequest, headers: Mapping[str, str], model: str) -> None:
    asked = (request.served_model, request.served_model, request.adapter_digest)
    got = (headers.get(SERVED_MODEL_HEADER), model, headers.get(ADAPTER_DIGEST_HEADER))
    if got != asked:
        raise CompletionFault(
            FailureReason.ADAPTER_MISMATCH,
            f"asked {request.served_model!r} with adapter {request.adapter_digest[:12]}, "
            f"answered by {model!r} (header {got[0]!r}) with adapter {(got[2] or 'unnamed')[:12]}",
        )


def _choice(choice: _Answer.Choice) -> Choice:
    if choice.message.reasoning or choice.message.tool_calls:
        raise CompletionFault(
            FailureReason.ENGINE_ERROR, "the engine split the raw turn: start it without reasoning and tool parsers"
        )
    tokens = choice.logprobs.content if choice.logprobs else None
    if choice.token_ids is None or tokens is None or len(choice.token_ids) != len(tokens):
        raise CompletionFault(FailureReason.ENGINE_ERROR, "the engine sent no log-probability for each token id")
    return Choice(
        reply=choice.message.content or "",
        token_ids=choice.token_ids,
        logprobs=[token.logprob for token in tokens],
        finish_reason=_FINISH.get(choice.finish_reason or "", FinishReason.ABORT),
    )


def thought(reply: str) -> bool:
    """Whether a reply holds a thinking block with something in it (an empty one is how thinking is switched off)."""
    if "<think>" not in reply and "</think>" not in reply:
        return False
    found = _THINKING.search(reply[reply.find("<think>") :] if "<think>" in reply else reply)
    return bool(found and found.group(1).strip())
