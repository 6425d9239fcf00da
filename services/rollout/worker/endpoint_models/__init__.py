"""Models that somebody else serves: a group's replies from any OpenAI-compatible or Anthropic endpoint.

Same prompt, same budget, same verifier; no token ids and no log-probabilities, so nothing can be trained on them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.rollout.worker.completion import Choice
from services.rollout.worker.endpoint_models.base import EndpointFault, EndpointReply, ModelApi
from services.rollout.worker.groups import Failed, FailureReason, GroupRequest
from shared.contracts.rollout import EndpointApi, ModelEndpoint
from shared.egress import EgressRule

MAXIMUM_IDLE = 8
"""Open clients, and the keys they hold, that are kept while no group uses them."""


@dataclass
class _Line:
    """An open client, how many requests it may have in flight, and how many groups use it now."""

    api: ModelApi
    free: asyncio.Semaphore
    groups: int = 0


class EndpointModels:
    """Open clients; of those that no group uses, the ones used last."""

    def __init__(self, egress: EgressRule) -> None:
        self._egress = egress
        self._lines: dict[tuple[ModelEndpoint, str | None], _Line] = {}
        """The one used last is the last."""

    async def generate(self, request: GroupRequest, endpoint: ModelEndpoint) -> tuple[dict[int, Choice], Failed | None]:
        """By place in the group the replies that came, and why others are missing.

        What the first call leaves open is asked for one by one: it has filled the provider's prompt cache by then.
        """
        wanted = len(request.sample_indices)
        async with self._line(endpoint, request.api_key) as line:
            found, failed = await _ask(line, request, wanted)
            if failed is None:
                rest = await asyncio.gather(*(_ask(line, request, 1) for _ in range(wanted - len(found))))
                found += [reply for replies, _ in rest for reply in replies]
                failed = next((missed for _, missed in rest if missed is not None), None)
        return {place: _choice(reply) for place, reply in enumerate(found)}, failed

    @contextlib.asynccontextmanager
    async def _line(self, endpoint: ModelEndpoint, api_key: str | None) -> AsyncIterator[_Line]:
        key = (endpoint, api_key)
        line = self._lines.pop(key, None)
        if line is None:
            line = _Line(open_api(endpoint, api_key, self._egress), asyncio.Semaphore(endpoint.concurrency))
        self._lines[key] = line
        line.groups += 1
        try:
            yield line
        finally:
            line.groups -= 1
            idle = [key for key, line in self._lines.items() if not line.groups]
            for key in idle[:-MAXIMUM_IDLE]:
                await self._lines.pop(key).api.close()

    async def close(self) -> None:
        """Give back every connection."""
        for line in self._lines.values():
            await line.api.close()
        self._lines.clear()


def open_api(endpoint: ModelEndpoint, api_key: str | None, egress: EgressRule) -> ModelApi:
    """A client that asks only where the rule allows. The SDKs are imported when first used: each takes a second."""
    if endpoint.api is EndpointApi.ANTHROPIC:
        from services.rollout.worker.endpoint_models.anthropic_api import AnthropicApi

        return AnthropicApi(endpoint, api_key, egress)
    from services.rollout.worker.endpoint_models.openai_api import OpenAIApi

    return OpenAIApi(endpoint, api_key, egress)


async def _ask(line: _Line, request: GroupRequest, samples: int) -> tuple[list[EndpointReply], Failed | None]:
    seconds = request.draw.timeout_seconds
    try:
        async with line.free, asyncio.timeout(seconds):  # the SDK's own limit is of the silence between two bytes
            return await line.api.ask(request.messages, request.draw, samples), None
    except TimeoutError:
        return [], Failed(FailureReason.TIMEOUT, f"no whole answer came within {seconds:g} s")
    except EndpointFault as fault:
        return [], Failed(fault.reason, fault.detail)


def _choice(reply: EndpointReply) -> Choice:
    return Choice(reply.text, [], [], reply.finish_reason, reply.tokens)
