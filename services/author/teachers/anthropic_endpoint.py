"""Claude through Anthropic's SDK: the API itself, or Amazon Bedrock."""

import anthropic
import httpx2

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

_OUTCOMES = {
    "end_turn": Outcome.COMPLETE,
    "stop_sequence": Outcome.COMPLETE,
    "max_tokens": Outcome.LENGTH,
    "model_context_window_exceeded": Outcome.LENGTH,
    "refusal": Outcome.REFUSAL,
}

Client = anthropic.AsyncAnthropic | anthropic.AsyncAnthropicBedrockMantle


class AnthropicEndpoint:
    """One Claude model."""

    def __init__(self, settings: TeacherSettings, model: str) -> None:
        self._client = _client(settings)
        self.model = model

    async def complete(self, prompt: Prompt, call_id: str, max_tokens: int, received: Received) -> Completion:
        """See `ModelEndpoint`. The system part is marked for the prompt cache: calls after the first read it there."""
        try:
            stream = await self._client.messages.create(
                model=self.model,
                max_tokens=max_tokens,
                system=[{"type": "text", "text": prompt.system, "cache_control": {"type": "ephemeral"}}],
                messages=[{"role": "user", "content": prompt.user}],
                stream=True,
                extra_headers={"Idempotency-Key": call_id},
            )
        except anthropic.APIStatusError as error:
            raise explain_status(
                error.status_code, self.model, self._url, "SQLCLIMB_ANTHROPIC_API_KEY", _message(error)
            ) from None
        except anthropic.APIConnectionError as error:
            raise unreachable(self._url, type(error).__name__, "SQLCLIMB_ANTHROPIC_BASE_URL") from None
        text, outcome, usage = "", Outcome.CUT, None
        try:
            async for event in stream:
                if event.type == "message_start":
                    began = event.message.usage
                    read, written = began.cache_read_input_tokens or 0, began.cache_creation_input_tokens or 0
                    usage = Usage(began.input_tokens, 0, read, written)
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    text += event.delta.text
                    received(text)
                elif event.type == "message_delta":
                    outcome = _OUTCOMES.get(event.delta.stop_reason or "", Outcome.CUT)
                    before = usage or Usage()
                    usage = Usage(before.input, event.usage.output_tokens, before.cache_read, before.cache_write)
        except (anthropic.AnthropicError, httpx2.HTTPError):
            outcome = Outcome.CUT
        finally:
            await stream.close()
        if usage is None:
            usage = Usage(tokens_of(prompt.system + prompt.user), tokens_of(text), estimated=True)
        elif outcome is Outcome.CUT:
            usage = Usage(usage.input, tokens_of(text), usage.cache_read, usage.cache_write, estimated=True)
        return Completion(text, outcome, usage)

    @property
    def _url(self) -> str:
        return str(self._client.base_url.copy_with(userinfo=b"", query=None))

    async def close(self) -> None:
        """See `ModelEndpoint`."""
        await self._client.close()


def _client(settings: TeacherSettings) -> Client:
    key = None if settings.anthropic_api_key is None else settings.anthropic_api_key.get_secret_value()
    timeout, retries = httpx2.Timeout(settings.teacher_stall_seconds, connect=CONNECT_SECONDS), settings.teacher_retries
    if settings.anthropic_bedrock_region is not None:
        return anthropic.AsyncAnthropicBedrockMantle(
            api_key=key, aws_region=settings.anthropic_bedrock_region, timeout=timeout, max_retries=retries
        )
    return anthropic.AsyncAnthropic(
        api_key=key, base_url=settings.anthropic_base_url, timeout=timeout, max_retries=retries
    )


def _message(error: anthropic.APIStatusError) -> str:
    """The provider's own sentence."""
    body = error.body
    inner = body.get("error") if isinstance(body, dict) else None
    return str(inner.get("message", "")) if isinstance(inner, dict) else ""
