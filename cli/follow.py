"""Progress lines for work that runs in a service: at most one a period, at least one every 10 s."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cli.context import say
from shared.clients.base import ServiceUnreachable

State = TypeVar("State")

POLL_SECONDS = 0.5
LINE_SECONDS = 5.0
"""Between progress lines."""


async def follow(
    fetch: Callable[[], Awaitable[State]], ended: Callable[[State], bool], line: Callable[[State], str]
) -> State:
    """Poll until `ended`, printing `line` every few seconds; returns the last state.

    A service that does not answer is named and waited for: the work is in it, not here.
    """
    told = time.monotonic()
    while True:
        try:
            state = await fetch()
        except ServiceUnreachable as error:
            say(f"  {error}; waiting for it to come back, nothing is lost")
            continue
        if ended(state):
            return state
        if time.monotonic() - told >= LINE_SECONDS:
            told = time.monotonic()
            say(f"  {line(state)}")
        await asyncio.sleep(POLL_SECONDS)
