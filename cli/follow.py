"""Progress lines for work that runs in a service: at most one a period, at least one every 10 s."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cli.context import say
from shared.clients.base import ServiceUnreachable, WrongAnswer

State = TypeVar("State")

POLL_SECONDS = 0.5
LINE_SECONDS = 5.0
"""Between progress lines."""

PATIENCE_SECONDS = 600.0
"""How long a service that does not answer is waited for; Ray with what runs on it takes a minute to be back."""


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
    """What a call that may be repeated answers. A service that does not answer is named and waited for.

    The work is in it, not here. Raises WrongAnswer at once, ServiceUnreachable when patience ends.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await call()
        except WrongAnswer:
            raise
        except ServiceUnreachable as error:
            if time.monotonic() > deadline:
                raise
            say(f"  {error}; waiting for it to come back, nothing is lost")
            await asyncio.sleep(POLL_SECONDS)
