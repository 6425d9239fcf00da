"""Any OpenAI-compatible endpoint through OpenAI's SDK: OpenAI itself, or the cluster's own vLLM with a bigger model."""

from typing import Any

import httpx2
import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam

from services.author.teachers.endpoint import (
    CONNECT_SECONDS,
    Completion,
    Outcome,
    Received,
    explain_status,
    unreachable,
)
from services.author.teachers.pricing import Usage, tokens_of
from services.author.teachers.prompt import Prompt
from services.author.teachers.settings import TeacherSettings

_OUTCOMES = {"stop": Outcome.COMPLETE, "length": Outcome.LENGTH, "content_filter": Outcome.REFUSAL}

_TEXT: dict[str, Any] = {"type": "string"}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["proposals"],
    "properties": {
        "proposals": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["questions", "sql", "columns", "order_matters", "archetype", "difficulty"],
                "properties": {
                    "questions": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["style", "question"],
                            "properties": {"style": _TEXT, "question": _TEXT},
                        },
                    },
                    "sql": _TEXT,
                    "columns": {"type": "array", "items": _TEXT},
                    "order_matters": {"type": "boolean"},
                    "archetype": _TEXT,
                    "difficulty": _TEXT,
                },
            },
        }
    },
}
_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "proposals", "strict": True, "schema": _SCHEMA},
}
"""What vLLM's guided decoding and OpenAI's structured outputs both take."""


class OpenAIEndpoint:
    """One model of an OpenAI-compatible endpoint."""

    def __init__(self, settings: TeacherSettings, model: str) -> None:
        key = settings.openai_api_key
        self._client = openai.AsyncOpenAI(
            api_key="" if key is None else key.get_secret_value(),
            base_url=settings.openai_base_url,
            timeout=httpx2.Timeout(settings.teacher_stall_seconds, connect=CONNECT_SECONDS),
            max_retries=settings.teacher_retries,
        )
        self.model = model
        self._structured = True
        """Until the endpoint refuses a schema; replies are parsed alike either way."""

    async def complete(self, prompt: Prompt, call_id: str, max_tokens: int, received: Received) -> Completion:
        """See `ModelEndpoint`."""
        try:
            stream = await self._open(prompt, call_id, max_tokens)
        except openai.APIStatusError as error:
            raise explain_status(
                error.status_code, self.model, self._url, "SQLCLIMB_OPENAI_API_KEY", error.message
            ) from None
        except openai.APIConnectionError as error:
            raise unreachable(self._url, type(error).__name__, "SQLCLIMB_OPENAI_BASE_URL") from None
        text, outcome, counted = "", Outcome.CUT, None
        try:
            async for chunk in stream:
                counted = chunk.usage or counted
                if not chunk.choices:
                    continue
                choice = chunk.choices[0]
                if choice.delta.content:
                    text += choice.delta.content
                    received(text)
                if choice.delta.refusal:
                    outcome = Outcome.REFUSAL
                elif choice.finish_reason and outcome is not Outcome.REFUSAL:
                    outcome = _OUTCOMES.get(choice.finish_reason, Outcome.CUT)
        except (openai.OpenAIError, httpx2.HTTPError):
            outcome = Outcome.CUT
        finally:
            await stream.close()
        if counted is None:
            estimate = Usage(tokens_of(prompt.system + prompt.user), tokens_of(text), estimated=True)
            return Completion(text, outcome, estimate)
        return Completion(text, outcome, _usage(counted))

    async def _open(self, prompt: Prompt, call_id: str, max_tokens: int) -> Any:
        """The stream; without a schema where the endpoint refuses one (a 400 costs nothing)."""
        if not (prompt.structured and self._structured):
            return await self._create(prompt, call_id, max_tokens, {})
        try:
            return await self._create(prompt, call_id, max_tokens, {"response_format": _FORMAT})
        except openai.BadRequestError:
            stream = await self._create(prompt, call_id, max_tokens, {})
            self._structured = False
            return stream

    async def _create(self, prompt: Prompt, call_id: str, max_tokens: int, extra: dict[str, Any]) -> Any:
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.user},
        ]
        return await self._client.chat.completions.create(
            model=self.model,
            messages=messages,
            max_completion_tokens=max_tokens,
            stream=True,
            stream_options={"include_usage": True},
            extra_headers={"Idempotency-Key": call_id},
            **extra,
        )

    @property
    def _url(self) -> str:
        return str(self._client.base_url.copy_with(userinfo=b"", query=None))

    async def close(self) -> None:
        """See `ModelEndpoint`."""
        await self._client.close()


def _usage(counted: CompletionUsage) -> Usage:
    details = counted.prompt_tokens_details
    read = (details.cached_tokens or 0) if details else 0
    written = (details.cache_write_tokens or 0) if details else 0
    return Usage(max(0, counted.prompt_tokens - read - written), counted.completion_tokens, read, written)
