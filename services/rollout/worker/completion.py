"""The engine's side of a group: the request's body, and its streamed answer read strictly. Pure.

The answer is streamed so that the replies that have ended outlive whatever cuts the others: a deadline, a dead engine.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from services.rollout.worker.groups import Failed, FailureReason, GroupRequest
from shared.contracts.inference import ADAPTER_DIGEST_HEADER, SERVED_MODEL_HEADER
from shared.contracts.verifier import FinishReason

_THINKING = re.compile(r"(?:<think>)?(.*?)(?:</think>|\Z)", re.DOTALL)

END = b"[DONE]"
"""Data of the last event."""

_ENDED = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
"""How a reply of the policy ends. Any other end is the engine's doing."""


class CompletionFault(Exception):
    """The answer cannot be used as samples of the policy asked for, not even in part."""

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
    reported_tokens: int | None = None
    """In place of ids, from an endpoint that gives none."""


class _Chunk(BaseModel):
    """The parts of vLLM's chat completion chunk that are read."""

    model_config = ConfigDict(extra="ignore", strict=False)

    class Choice(BaseModel):
        class Delta(BaseModel):
            content: str | None = None
            reasoning: str | None = None
            tool_calls: list[Any] | None = None

        class Logprobs(BaseModel):
            class Token(BaseModel):
                logprob: FiniteFloat

            content: list[Token] | None

        index: int
        delta: Delta
        logprobs: Logprobs | None = None
        finish_reason: str | None = None
        token_ids: list[int] | None = None

    class Error(BaseModel):
        message: str

    error: Error | None = None
    model: str = ""
    choices: list[Choice] = []
    prompt_token_ids: list[int] | None = None


def request_body(request: GroupRequest) -> dict[str, Any]:
    """`POST /v1/chat/completions` for the whole group: one prompt, n replies, so the prompt is computed once.

    A stream interval as long as the budget: vLLM then sends a reply's first token and its end, no chunk between them.

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
        "stream": True,
        "stream_interval": request.draw.max_tokens,
        "chat_template_kwargs": {"enable_thinking": request.draw.thinking},
    }


def check_answer(request: GroupRequest, headers: Mapping[str, str]) -> None:
    """What the headers say of an answer that begins. Raises CompletionFault.

    Samples of any other adapter than the one asked for are refused: rows of two adapters never mix.
    """
    media_type = headers.get("content-type", "nothing")
    if not media_type.startswith("text/event-stream"):
        raise CompletionFault(FailureReason.ENGINE_ERROR, f"the engine answers {media_type}, not an event stream")
    asked = (request.served_model, request.adapter_digest)
    got = (headers.get(SERVED_MODEL_HEADER, "unnamed"), headers.get(ADAPTER_DIGEST_HEADER, "unnamed"))
    if got != asked:
        raise CompletionFault(
            FailureReason.ADAPTER_MISMATCH,
            f"asked {asked[0]!r} with adapter {asked[1][:12]}, answered by {got[0]!r} with adapter {got[1][:12]}",
        )


@dataclass
class _Reply:
    """A reply as far as it has come."""

    parts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class GroupReading:
    """The answer to `request_body`, event by event."""

    def __init__(self, request: GroupRequest) -> None:
        self._model = request.served_model
        self._open = {place: _Reply() for place in range(len(request.sample_indices))}
        self.prompt_token_ids: list[int] = []
        self.ended: dict[int, Choice] = {}
        """Place in the group to the reply, of those the policy ended (or the token budget)."""
        self._given_up: Failed | None = None
        """Of the replies the engine ended, the last one's fault."""

    def add(self, data: bytes) -> None:
        """One event but the last. Raises CompletionFault."""
        try:
            chunk = _Chunk.model_validate_json(data)
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in fault["loc"])
            detail = f"an event of the engine is no chat completion chunk: {where}: {fault['msg']}"
            raise CompletionFault(FailureReason.ENGINE_ERROR, detail) from error
        if chunk.error is not None:
            self._given_up = Failed(FailureReason.ENGINE_ERROR, chunk.error.message[:500])
            return
        if chunk.model != self._model:
            detail = f"asked {self._model!r}, an event says {chunk.model!r}"
            raise CompletionFault(FailureReason.ADAPTER_MISMATCH, detail)
        self.prompt_token_ids = chunk.prompt_token_ids or self.prompt_token_ids
        for choice in chunk.choices:
            self._extend(choice)

    def _extend(self, choice: _Chunk.Choice) -> None:
        reply = self._open.get(choice.index)
        if reply is None:
            raise CompletionFault(FailureReason.ENGINE_ERROR, f"reply {choice.index} was not asked for, or had ended")
        if choice.delta.reasoning or choice.delta.tool_calls:
            raise CompletionFault(
                FailureReason.ENGINE_ERROR, "the engine split the raw turn: start it without reasoning and tool parsers"
            )
        ids = choice.token_ids or []
        tokens = (choice.logprobs.content if choice.logprobs else None) or []
        if len(ids) != len(tokens) or (choice.delta.content and not ids and not reply.token_ids):
            raise CompletionFault(FailureReason.ENGINE_ERROR, "the engine sent no log-probability for each token id")
        reply.parts.append(choice.delta.content or "")
        reply.token_ids += ids
        reply.logprobs += [token.logprob for token in tokens]
        if choice.finish_reason is not None:
            self._end(choice.index, choice.finish_reason)

    def _end(self, place: int, finish: str) -> None:
        if not self.prompt_token_ids:
            raise CompletionFault(FailureReason.ENGINE_ERROR, "the engine sent no prompt token ids")
        reply = self._open.pop(place)
        if finish not in _ENDED:
            self._given_up = Failed(FailureReason.ENGINE_ABORTED, f"the engine ended a reply with {finish!r}")
        elif not reply.token_ids:
            self._given_up = Failed(FailureReason.EMPTY_REPLY, "a reply came without a single token")
        else:
            self.ended[place] = Choice("".join(reply.parts), reply.token_ids, reply.logprobs, _ENDED[finish])

    def shortfall(self) -> Failed | None:
        """At the end of the stream: why replies are missing, None when all came."""
        if self._given_up is not None or not self._open:
            return self._given_up
        if any(reply.token_ids for reply in self._open.values()):
            return Failed(FailureReason.ENGINE_ERROR, f"the stream ended before {len(self._open)} replies had")
        return Failed(FailureReason.EMPTY_REPLY, f"{len(self._open)} replies came without a single token")


def thought(reply: str) -> bool:
    """Whether a reply holds a thinking block with something in it (an empty one is how thinking is switched off)."""
    if "<think>" not in reply and "</think>" not in reply:
        return False
    found = _THINKING.search(reply[reply.find("<think>") :] if "<think>" in reply else reply)
    return bool(found and found.group(1).strip())
