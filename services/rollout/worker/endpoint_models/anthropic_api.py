"""Anthropic's messages: one reply a request."""

from typing import Any

import anthropic
import httpx2

from services.rollout.worker.endpoint_models.base import (
    CONNECT_SECONDS,
    NO_KEY,
    RETRIES,
    EndpointReply,
    not_the_api,
    overspent,
    sdk_faults,
)
from services.rollout.worker.endpoint_models.egress import GuardedTransport
from services.rollout.worker.groups import Draw
from shared.contracts.rollout import Message, ModelEndpoint
from shared.contracts.verifier import FinishReason
from shared.egress import EgressRule

_CUT = ("max_tokens", "model_context_window_exceeded")


class AnthropicApi:
    """See `ModelApi`."""

    def __init__(self, endpoint: ModelEndpoint, api_key: str | None, egress: EgressRule) -> None:
        self._endpoint = endpoint
        self._key = api_key
        guarded = anthropic.DefaultAsyncHttpxClient(
            transport=GuardedTransport(egress, endpoint.concurrency),
            follow_redirects=False,  # the key, and a prompt, go to the address that was named
        )
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key or NO_KEY, base_url=endpoint.url, max_retries=RETRIES, http_client=guarded
        )

    async def ask(self, messages: tuple[Message, ...], draw: Draw, samples: int) -> list[EndpointReply]:
        """See `ModelApi`. The system part is marked for the prompt cache: later samples read it there."""
        url = self._endpoint.url
        system = [message.content for message in messages if message.role == "system"]
        # Left out where it is the API's own default: newer models refuse both, and the SDK has no field for them.
        chosen = {"temperature": draw.temperature, "top_p": draw.top_p}
        extra: dict[str, Any] = {"extra_body": {name: value for name, value in chosen.items() if value != 1}}
        if system:
            text = "\n\n".join(system)
            extra["system"] = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
        with sdk_faults(anthropic, anthropic.AnthropicError, self._endpoint, self._key):
            answer = await self._client.messages.create(
                model=self._endpoint.model,
                max_tokens=draw.max_tokens,
                messages=[{"role": "user", "content": asked.content} for asked in messages if asked.role == "user"],
                timeout=httpx2.Timeout(draw.timeout_seconds, connect=CONNECT_SECONDS),
                **extra,
            )
        if not isinstance(answer, anthropic.types.Message) or answer.type != "message":
            raise not_the_api(url, "text" if isinstance(answer, str) else "JSON")
        reply = EndpointReply(
            text="".join(block.text for block in answer.content if block.type == "text"),
            finish_reason=FinishReason.LENGTH if answer.stop_reason in _CUT else FinishReason.STOP,
            tokens=answer.usage.output_tokens,
        )
        if (fault := overspent(url, reply, draw.max_tokens)) is not None:
            raise fault
        return [reply]

    async def close(self) -> None:
        """See `ModelApi`."""
        await self._client.close()
