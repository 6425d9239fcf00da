"""Progress lines for work that runs in a service: at most one a period, at least one every 10 s."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cli.context import say
from shared.clients.base import ServiceProblem, ServiceUnreachable, WrongAnswer

State = TypeVar("State")

POLL_SECONDS = 0.5
LINE_SECONDS = 5.0
"""Between progress lines."""

PATIENCE_SECONDS = 600.0
"""How long a service that does not answer is waited for; Ray with what runs on it takes a minute to be back."""

PASSING = frozenset({502, 503, 504})
"""Statuses of a service that is starting again or waits for another one; the first and last are its ingress's."""


async def follow(
    fetch: Callable[[], Awaitable[State]], ended: Callable[[State], bool], line: Callable[[State], str]
) -> State:
    """Poll until `ended`, printing `line` every few seconds; returns the last state. Raises as `patiently` does."""
    told = time.monotonic()
    while True:
        state = await patiently(fetch)
        if ended(state):
            return state
        if time.monotonic() - told >= LINE_SECONDS:
            told = time.monotonic()
            say(f"  {line(state)}")
        await asyncio.sleep(POLL_SECONDS)


async def patiently(call: Callable[[], Awaitable[State]]) -> State:
    """What a call that may be repeated answers. A service that does not answer, or not yet, is named and waited for.

    The work is in it, not here. Raises WrongAnswer, and ServiceProblem of a lasting refusal, at once;
    ServiceUnreachable and ServiceProblem when patience ends.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    told = -LINE_SECONDS
    while True:
        try:
            return await call()
        except WrongAnswer:
            raise
        except (ServiceUnreachable, ServiceProblem) as error:
            reason = _away(error)
            if reason is None or time.monotonic() > deadline:
                raise
            if time.monotonic() - told >= LINE_SECONDS:
                told = time.monotonic()
                say(f"  {reason}; waiting for it to come back, nothing is lost")
        await asyncio.sleep(POLL_SECONDS)


def _away(error: ServiceUnreachable | ServiceProblem) -> str | None:
    """Why a service is waited for; None where waiting changes nothing."""
    if isinstance(error, ServiceUnreachable):
        return str(error)
    if error.problem.status not in PASSING:
        return None
    return f"not ready (HTTP {error.problem.status}): {error}".rstrip(".")
