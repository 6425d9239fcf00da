"""OpenAI's chat completions: OpenAI itself, vLLM, SGLang, Ollama, and many gateways."""

from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletion

from services.rollout.worker.endpoint_models.base import (
    CONNECT_SECONDS,
    NO_KEY,
    RETRIES,
    EndpointFault,
    EndpointReply,
    not_the_api,
    overspent,
    sdk_faults,
)
from services.rollout.worker.endpoint_models.egress import GuardedTransport
from services.rollout.worker.groups import Draw, FailureReason
from shared.contracts.rollout import Message, ModelEndpoint
from shared.contracts.verifier import FinishReason
from shared.egress import EgressRule


class OpenAIApi:
    """See `ModelApi`."""

    def __init__(self, endpoint: ModelEndpoint, api_key: str | None, egress: EgressRule) -> None:
        self._endpoint = endpoint
        self._key = api_key
        guarded = openai.DefaultAsyncHttpxClient(
            transport=GuardedTransport(egress, endpoint.concurrency),
            follow_redirects=False,  # the key, and a prompt, go to the address that was named
        )
        self._client = openai.AsyncOpenAI(
            api_key=api_key or NO_KEY, base_url=endpoint.url, max_retries=RETRIES, http_client=guarded
        )
        self._at_once = True
        """Until the endpoint refuses to draw several replies to one prompt."""
        self._told = True
        """Until it refuses `temperature` and `top_p` at the API's own default of 1, as models with fixed ones do."""

    async def ask(self, messages: tuple[Message, ...], draw: Draw, samples: int) -> list[EndpointReply]:
        """See `ModelApi`. Several at once where the endpoint can: the prompt is billed once.

        What an endpoint refuses costs nothing, so it is asked again with less: one reply, then without the two fields.
        """
        samples = samples if self._at_once else 1
        tries = [(samples, self._told)]
        if samples > 1:
            tries.append((1, self._told))
        if self._told and draw.temperature == draw.top_p == 1:
            tries.append((1, False))
        for place, (count, told) in enumerate(tries, start=1):
            try:
                found = await self._ask(messages, draw, count, told)
            except EndpointFault as fault:
                if fault.reason is not FailureReason.ENGINE_REFUSED or place == len(tries):
                    raise
                continue
            if told == self._told:
                self._at_once = self._at_once and count == samples
            self._told = told
            return found
        raise AssertionError("the last try returns or raises")

    async def _ask(self, messages: tuple[Message, ...], draw: Draw, samples: int, told: bool) -> list[EndpointReply]:
        url = self._endpoint.url
        chosen: dict[str, Any] = {} if samples == 1 else {"n": samples}
        if told:  # also at 1: vLLM would take a value that is not sent from the model's own generation config
            chosen |= {"temperature": draw.temperature, "top_p": draw.top_p}
        with sdk_faults(openai, openai.OpenAIError, self._endpoint, self._key):
            answer = await self._client.chat.completions.create(
                model=self._endpoint.model,
                messages=[{"role": message.role, "content": message.content} for message in messages],  # type: ignore[misc]  # a union by role
                max_completion_tokens=draw.max_tokens,
                timeout=httpx2.Timeout(draw.timeout_seconds, connect=CONNECT_SECONDS),
                **chosen,
            )
        if not isinstance(answer, ChatCompletion) or not answer.choices:
            raise not_the_api(url, "text" if isinstance(answer, str) else "JSON")
        total = answer.usage.completion_tokens if answer.usage else 0
        replies = [
            EndpointReply(
                text=choice.message.content or choice.message.refusal or "",
                finish_reason=FinishReason.LENGTH if choice.finish_reason == "length" else FinishReason.STOP,
                tokens=round(total / len(answer.choices)),
            )
            for choice in answer.choices[:samples]
        ]
        if (fault := overspent(url, replies[0], draw.max_tokens)) is not None:
            raise fault
        return replies

    async def close(self) -> None:
        """See `ModelApi`."""
        await self._client.close()
