"""Groups in flight: each is asked until it lands or is given up, and is in the ledger before anyone hears of it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from services.rollout import metrics
from services.rollout.gate import Gate
from services.rollout.groups import PERMANENT, Failed, GroupRequest, Landed
from services.rollout.patience import RetryRule
from shared.contracts.verifier import Status


class Sampler(Protocol):
    """Where groups are sampled: the Ray workers."""

    async def __call__(self, request: GroupRequest) -> Landed | Failed:
        """Never raises for an infrastructure failure."""
        ...


class Journal(Protocol):
    """Where outcomes are written before they count."""

    async def land(self, request: GroupRequest, landed: Landed) -> None:
        """Write the group's rows."""
        ...

    async def reroll(self, request: GroupRequest, failed: Failed) -> None:
        """Count samples that are asked for again."""
        ...

    async def lose(self, request: GroupRequest, failed: Failed) -> None:
        """Count samples that are given up."""
        ...


class Dispatcher:
    """Keeps `in_flight` groups with the workers."""

    def __init__(self, sampler: Sampler, journal: Journal, gate: Gate, retry: RetryRule, in_flight: int) -> None:
        self._sampler = sampler
        self._journal = journal
        self._gate = gate
        self._retry = retry
        self._in_flight = in_flight

    async def run(self, requests: Sequence[GroupRequest]) -> AsyncGenerator[tuple[GroupRequest, Landed | Failed], None]:
        """Outcomes as they are in the ledger, any order. Closing the iterator cancels what is in flight.

        Raises what the journal raises (a fence, a database that stays away).
        """
        waiting = deque(requests)
        running: set[asyncio.Task[tuple[GroupRequest, Landed | Failed]]] = set()
        try:
            while waiting or running:
                while waiting and len(running) < self._in_flight:
                    running.add(asyncio.create_task(self._finish(waiting.popleft())))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _finish(self, request: GroupRequest) -> tuple[GroupRequest, Landed | Failed]:
        failures = 0
        while True:
            await self._gate.passed()
            pauses = self._gate.pauses
            with metrics.GROUPS_IN_FLIGHT.track_inprogress(), metrics.GROUP_SECONDS.time():
                outcome = await self._sampler(request)
            if isinstance(outcome, Landed):
                await self._land(request, outcome)
                return request, outcome
            permanent = outcome.reason in PERMANENT
            if permanent or not await self._gate.failed(pauses, f"{outcome.reason}: {outcome.detail}"):
                failures += 1
            wait_seconds = self._retry.wait_seconds(outcome.reason, failures)
            if wait_seconds is None:
                await self._journal.lose(request, outcome)
                metrics.LOSSES.labels(outcome.reason).inc(len(request.sample_indices))
                return request, outcome
            await self._journal.reroll(request, outcome)
            metrics.REROLLS.labels(outcome.reason).inc(len(request.sample_indices))
            await asyncio.sleep(wait_seconds)

    async def _land(self, request: GroupRequest, landed: Landed) -> None:
        await self._journal.land(request, landed)
        unscorable = sum(sample.status is Status.UNSCORABLE for sample in landed.samples)
        if 2 * unscorable < len(landed.samples):
            self._gate.succeeded()
        else:  # the rows stay, as unscorable; but groups after this one wait for a verifier that works
            await self._gate.failed(self._gate.pauses, f"{unscorable} replies unscorable: {landed.samples[0].reason}")
        for sample in landed.samples:
            metrics.ROWS.labels(sample.status).inc()
