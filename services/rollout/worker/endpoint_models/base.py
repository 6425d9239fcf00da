"""What both APIs are reduced to, and how their failures become reasons."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

from services.rollout.worker.groups import Draw, FailureReason
from shared.contracts.rollout import Message, ModelEndpoint
from shared.contracts.verifier import FinishReason
from shared.egress import EgressRefused

CONNECT_SECONDS = 10.0

RETRIES = 4
"""The SDK's own, after the time a provider names: a rate limit passes in seconds. What lasts longer is a failure of the
group, which the dispatcher asks again, and pauses the sampling when most groups fail."""


NO_KEY = "none"
"""Sent to endpoints that need no key: neither SDK makes a client without one."""

REDACTED = "[API key]"
"""What stands in an error where a provider quotes the key."""


@dataclass(frozen=True)
class EndpointReply:
    """One reply, as far as an endpoint tells of it."""

    text: str
    finish_reason: FinishReason
    tokens: int
    """By the endpoint's own count; of several replies counted together, an even share; 0 where it does not say."""


class AnswerRefused(Exception):
    """What an endpoint sends is not read to its end; the message is the reason."""


class EndpointFault(Exception):
    """No usable reply came. Never the model's fault."""

    def __init__(self, reason: FailureReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class ModelApi(Protocol):
    """One model behind one API."""

    async def ask(self, messages: tuple[Message, ...], draw: Draw, samples: int) -> list[EndpointReply]:
        """Between one and `samples` replies to one prompt. Raises EndpointFault."""
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


@contextlib.contextmanager
def sdk_faults(sdk: ModuleType, root: type[Exception], endpoint: ModelEndpoint, api_key: str | None) -> Iterator[None]:
    """What an SDK raises, as EndpointFault. Both are made by one generator: but for `root` they name errors alike."""
    url = endpoint.url
    try:
        yield
    except sdk.APIStatusError as error:
        raise _status_fault(error.status_code, url, endpoint.model, error.message, api_key) from None
    except sdk.APITimeoutError:
        raise EndpointFault(FailureReason.TIMEOUT, f"{url} did not finish within its budget") from None
    except sdk.APIConnectionError as error:
        if isinstance(error.__cause__, EgressRefused):
            raise EndpointFault(FailureReason.ENGINE_REFUSED, str(error.__cause__)) from None
        if isinstance(error.__cause__, AnswerRefused):
            raise EndpointFault(FailureReason.ENGINE_REFUSED, f"{url}: {error.__cause__}") from None
        cause = type(error.__cause__ or error).__name__
        raise EndpointFault(FailureReason.ENGINE_UNREACHABLE, f"{url} gave no answer ({cause})") from None
    except (root, ValueError) as error:
        raise not_the_api(url, type(error).__name__) from None


def _status_fault(status: int, url: str, model: str, message: str, api_key: str | None) -> EndpointFault:
    """An error answer. `message` is the provider's own, which may quote the key."""
    said = f"{url} answers HTTP {status}"
    if status in (401, 403):
        return EndpointFault(
            FailureReason.ENGINE_REFUSED, f"{said}: the API key is missing, wrong, or may not use {model!r}"
        )
    if status < 400:
        return EndpointFault(FailureReason.ENGINE_REFUSED, f"{said}, a redirect: name the address it leads to instead")
    if status == 404:
        return EndpointFault(
            FailureReason.ENGINE_REFUSED, f"{said}: no model {model!r} there, or the URL lacks its /v1 (OpenAI's API)"
        )
    if status == 429:
        return EndpointFault(FailureReason.ENGINE_ERROR, f"{said}: rate limit or quota; a lower concurrency may help")
    if status == 408 or status >= 500:
        return EndpointFault(FailureReason.ENGINE_ERROR, said)
    if api_key is not None:
        message = message.replace(api_key, REDACTED)  # before it is shortened: a part of a key is a leak too
    return EndpointFault(FailureReason.ENGINE_REFUSED, f"{said}: {message[:200]}")


def not_the_api(url: str, media_type: str) -> EndpointFault:
    """A 200 that is no answer of the API: a web page, a proxy's greeting."""
    return EndpointFault(
        FailureReason.ENGINE_REFUSED,
        f"{url} answers {media_type or 'something'} that is no completion: is the URL the API's own, with its /v1?",
    )


def overspent(url: str, reply: EndpointReply, budget: int) -> EndpointFault | None:
    """A fault when a reply is longer than asked for: an endpoint that ignores the budget is not comparable."""
    if reply.tokens <= budget:
        return None
    return EndpointFault(
        FailureReason.ENGINE_REFUSED, f"{url} wrote {reply.tokens} tokens on a budget of {budget}: it ignores the limit"
    )
