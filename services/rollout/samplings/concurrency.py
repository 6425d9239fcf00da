"""How many groups are with the engine at once: as many as keep it full, by its own queue and cache.

One limit for all samplings and batches of a coordinator: they share the engines. Additive increase, multiplicative
decrease, as congestion control does it: a full cache makes vLLM throw replies away and begin them again (preemption),
a long queue only makes every deadline tighter.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from statistics import median_low

from anyio import CapacityLimiter

from services.rollout import metrics
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.contracts.inference import Pressure

log = logging.getLogger(__name__)

READ_SECONDS = 1.0
"""Between two looks at the engines; the gateway's figures are as old as that."""

QUEUED_SHARE = 0.25
"""Sequences queued, as a share of those running, that keep the batch full as replies end; more is too many."""

CROWDED_KV = 0.9
"""Share of the KV cache above which running replies are close to being preempted."""

ROOMY_KV = 0.75
"""Share below which another group fits."""

DECREASE = 0.75
"""What is left of the limit when the engine is crowded."""

INCREASE = 0.125
"""Growth of a limit that is used up while the engine has room, at least by one."""

LOOKS = 3
"""Looks that a fall rests on. One look proves nothing: groups that have just come are queued for an instant too."""


def steady(looks: Sequence[Pressure]) -> Pressure:
    """What the last looks have in common: the median queue and cache, the fullest batch."""
    latest = looks[-1]
    return latest.model_copy(
        update={
            "running": max(look.running for look in looks),
            "waiting": median_low(look.waiting for look in looks),
            "kv_use": median_low(look.kv_use for look in looks),
        }
    )


def crowded(pressure: Pressure) -> bool:
    """Whether more groups only wait, or push others out."""
    return pressure.waiting > QUEUED_SHARE * pressure.running or pressure.kv_use > CROWDED_KV


def next_limit(limit: int, in_flight: int, most: int, looks: Sequence[Pressure], refused: bool) -> int:
    """The limit after the last of `looks`, 1 to `most`. `refused`: since the one before, the gateway turned one away.

    It falls from what is in flight, and no further before the last fall shows; it rises only when it is used up.
    """
    pressure = steady(looks)
    if refused or (len(looks) >= LOOKS and crowded(pressure)):
        if not 0 < in_flight <= limit:
            return limit
        return max(1, int(DECREASE * in_flight))
    room = pressure.serving > 0 and pressure.waiting == 0 and pressure.kv_use < ROOMY_KV
    return min(most, limit + max(1, int(INCREASE * limit))) if room and in_flight >= limit else limit


class ConcurrencyLimit:
    """The limit, kept up to date by `follow`; groups hold one of `slots` while they are with a worker."""

    def __init__(self, read: Callable[[], Awaitable[Pressure]], most: int) -> None:
        self._read = read
        self._most = most
        self._refused = False
        self._looks: deque[Pressure] = deque(maxlen=LOOKS)
        self.slots = CapacityLimiter(most)

    @property
    def most(self) -> int:
        """Groups in flight that the limit may reach."""
        return self._most

    def refused(self) -> None:
        """The gateway turned a group away: it is full."""
        self._refused = True

    async def follow(self) -> None:
        """For ever, while groups are in flight. Where the engines' figures cannot be had, the limit stays."""
        while True:
            metrics.GROUPS_LIMIT.set(self.slots.total_tokens)
            await asyncio.sleep(READ_SECONDS)
            if not self.slots.borrowed_tokens:
                self._looks.clear()
                continue
            try:
                self._looks.append(await self._read())
            except (ServiceProblem, ServiceUnreachable) as error:
                log.debug("the engines' pressure is not known: %s", error)
                continue
            before = int(self.slots.total_tokens)
            limit = next_limit(before, self.slots.borrowed_tokens, self._most, self._looks, self._refused)
            self.slots.total_tokens, self._refused = limit, False
            if limit < before:  # looks from before a fall say nothing of what it brought
                self._looks.clear()
