"""A language model behind an SDK: what both SDKs are reduced to, and how their failures are told apart."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from services.author.teachers.base import TeacherError
from services.author.teachers.pricing import Usage
from services.author.teachers.prompt import Prompt

CONNECT_SECONDS = 10.0


class Outcome(StrEnum):
    """How a call ended."""

    COMPLETE = "complete"
    LENGTH = "length"  # cut by the reply budget
    REFUSAL = "refusal"  # the model declines; nothing of it is used
    CUT = "cut"  # the stream broke off; what had come is kept


@dataclass(frozen=True)
class Completion:
    """One reply."""

    text: str
    outcome: Outcome
    usage: Usage


Received = Callable[[str], None]
"""Told the whole text so far each time more of it arrives."""


class ModelEndpoint(Protocol):
    """One model that answers prompts."""

    @property
    def model(self) -> str:
        """The name it is called by."""
        ...

    async def complete(self, prompt: Prompt, call_id: str, max_tokens: int, received: Received) -> Completion:
        """One reply, streamed. `call_id` goes out as `Idempotency-Key`: a gateway that honours it bills one call once.

        Retries what the SDK retries (refused connections, 408, 409, 429, 5xx, as `retry-after` says). A stream that
        breaks off is an outcome, not an error. Raises TeacherError where no reply began.
        """
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


def explain_status(status: int, model: str, url: str, key_setting: str, message: str) -> TeacherError:
    """A refusal of the provider, in words that name the setting. `message` is the provider's own."""
    if status in (401, 403):  # the provider's message may quote the key
        return TeacherError(
            f"{url} refused the API key (HTTP {status}): set {key_setting} to one that may use {model!r}"
        )
    if status == 404:
        return TeacherError(f"{url} has no model {model!r} (HTTP 404): give one it serves by `model`")
    if status == 429:
        return TeacherError(f"{url} still limits the rate after every retry (HTTP 429): lower `concurrency`, or wait")
    if status >= 500:
        return TeacherError(f"{url} is overloaded or broken (HTTP {status}) after every retry: try again later")
    return TeacherError(f"{url} refused the call (HTTP {status}): {message[:200]}")


def unreachable(url: str, cause: str, url_setting: str) -> TeacherError:
    """No answer at all."""
    return TeacherError(f"{url} gave no answer ({cause}) after every retry: is it up, and is {url_setting} right?")
