"""Groups in flight: each is asked until it lands or is given up, and is in the ledger before anyone hears of it."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from services.rollout import metrics
from services.rollout.batches.stragglers import BatchClock
from services.rollout.samplings.concurrency import ConcurrencyLimit
from services.rollout.samplings.gate import Gate
from services.rollout.samplings.patience import RetryRule
from services.rollout.worker.groups import PERMANENT, Failed, FailureReason, GroupRequest, Landed
from shared.contracts.verifier import Status

LOOK_SECONDS = 0.5
"""Between two looks whether a training batch has to wait for its stragglers."""

CUT_SECONDS = 60.0
"""A worker answers a cut at once but for its verify call; one that has not by now did not hear it."""


class Sampler(Protocol):
    """Where groups are sampled: the Ray workers."""

    def sample(self, request: GroupRequest) -> AsyncGenerator[Landed | Failed, None]:
        """Samples as they are verified, at the end why others are missing. Raises for no infrastructure failure."""
        ...

    async def cut(self, sampling_id: str) -> None:
        """Have the sampling's groups end with what they have."""
        ...


class Journal(Protocol):
    """Where outcomes are written before they count."""

    async def land(self, request: GroupRequest, landed: Landed) -> None:
        """Write rows of the group."""
        ...

    async def reroll(self, request: GroupRequest, reason: FailureReason, samples: int) -> None:
        """Count samples that are asked for again."""
        ...

    async def lose(self, request: GroupRequest, failed: Failed) -> None:
        """Count the samples that `request` still asks for as given up."""
        ...


class _Phase(StrEnum):
    NEW = "new"  # waits for its first turn
    WAITING = "waiting"  # for another turn
    ASKED = "asked"
    WRITING = "writing"


@dataclass
class GroupInFlight:
    """A group on its way; the dispatcher gives it out once it is done."""

    request: GroupRequest
    """What is still to be asked for."""
    phase: _Phase = _Phase.NEW
    failures: int = 0
    """Tries that failed and are held against it."""
    outages: int = 0
    """Tries that fell into a pause."""
    failed: Failed | None = None
    """Why its last try brought less than it was asked for."""
    sample_ms: float = 0.0
    verify_ms: float = 0.0


class Dispatcher:
    """Keeps groups with the workers, as many as `limit` allows. `clock`: a training batch's, which waits for no one."""

    def __init__(
        self,
        sampler: Sampler,
        journal: Journal,
        gate: Gate,
        retry: RetryRule,
        limit: ConcurrencyLimit,
        clock: BatchClock | None = None,
    ) -> None:
        self._sampler = sampler
        self._journal = journal
        self._gate = gate
        self._retry = retry
        self._limit = limit
        self._clock = clock
        self._turn = asyncio.Lock()  # one group of a sampling waits for a slot: samplings and batches take turns
        self._cut_at: float | None = None

    async def run(self, requests: Sequence[GroupRequest]) -> AsyncGenerator[GroupInFlight, None]:
        """Groups as they are done and in the ledger, any order. Closing the iterator cancels what is in flight.

        Raises what the journal raises (a fence, a database that stays away).
        """
        waiting = deque(requests)
        running: dict[asyncio.Task[None], GroupInFlight] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._limit.most:
                    group = GroupInFlight(waiting.popleft())
                    running[asyncio.create_task(self._finish(group))] = group
                timeout = await self._look_for_stragglers(running, bool(waiting))
                done, _ = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    group = running.pop(task)
                    if task.cancelled():
                        await self._lose(group, group.failed or Failed(FailureReason.STRAGGLER, "it heard no cut"))
                    else:
                        task.result()
                    yield group
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _look_for_stragglers(
        self, running: dict[asyncio.Task[None], GroupInFlight], more_to_start: bool
    ) -> float | None:
        """Cut what the batch no longer waits for; seconds until the next look, None for no need of one."""
        if self._clock is None:
            return None
        if more_to_start or not self._gate.open or any(group.phase is _Phase.NEW for group in running.values()):
            self._clock.hold()
        left = self._clock.seconds_left()
        if left is None:
            return LOOK_SECONDS
        if left > 0:
            return min(left, LOOK_SECONDS)
        self._cut_at = self._cut_at or time.monotonic()
        asked = [group.request for group in running.values() if group.phase is _Phase.ASKED]
        if asked:  # at each look: one may have been on its way to a worker
            await self._sampler.cut(asked[0].sampling_id)
        unheard = time.monotonic() - self._cut_at > CUT_SECONDS
        for task, group in running.items():
            if group.phase is _Phase.WAITING or (unheard and group.phase is _Phase.ASKED):
                task.cancel()
        return LOOK_SECONDS

    async def _finish(self, group: GroupInFlight) -> None:
        wait_seconds: float | None = 0.0
        while wait_seconds is not None:
            await asyncio.sleep(wait_seconds)
            await self._gate.passed()
            pauses = self._gate.pauses
            group.failed = failed = await self._try(group)
            if failed is None:
                return
            wait_seconds = await self._wait_seconds(group, failed, pauses)
            if wait_seconds is None:
                await self._lose(group, failed)
            else:
                group.phase = _Phase.WAITING
                await self._reroll(group, failed.reason, len(group.request.sample_indices))

    async def _try(self, group: GroupInFlight) -> Failed | None:
        """Ask once for what is missing; why some still is. Tells the gate of a try that went well."""
        unscorable, landed, failed = 0, 0, None
        async with self._slot():
            group.phase, group.failed = _Phase.ASKED, None
            with metrics.GROUPS_IN_FLIGHT.track_inprogress(), metrics.GROUP_SECONDS.time():
                async with contextlib.aclosing(self._sampler.sample(group.request)) as outcomes:
                    async for outcome in outcomes:
                        if isinstance(outcome, Failed):
                            failed = outcome
                            continue
                        await self._land(group, outcome)
                        landed += len(outcome.samples)
                        unscorable += sum(sample.status is Status.UNSCORABLE for sample in outcome.samples)
        if failed is None and group.request.sample_indices:
            failed = Failed(FailureReason.WORKER_DIED, "the worker ended without all samples and said no reason")
        if failed is None and 2 * unscorable >= landed:
            # The rows stay, as unscorable; but groups after this one wait for a verifier that works.
            await self._gate.failed(self._gate.pauses, f"{unscorable} replies of a group unscorable")
        elif failed is None:
            await self._gate.succeeded()
        return failed

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncGenerator[None, None]:
        """Held while a group is with a worker."""
        async with self._turn:
            await self._limit.slots.acquire()
        try:
            yield
        finally:
            self._limit.slots.release()

    async def _wait_seconds(self, group: GroupInFlight, failed: Failed, pauses: int) -> float | None:
        """Before the next try; None: give up. Returns when a pause that the failure brought about is over."""
        if self._cut_at is not None or failed.reason is FailureReason.STRAGGLER:
            await self._gate.excused(pauses)
            return None
        if failed.reason in PERMANENT:
            await self._gate.succeeded()
            return None
        if failed.reason is FailureReason.ENGINE_BUSY:
            self._limit.refused()
            await self._gate.excused(pauses)
        elif await self._gate.failed(pauses, f"{failed.reason}: {failed.detail}"):
            group.outages += 1
        else:
            group.failures += 1
        return self._retry.wait_seconds(failed.reason, group.failures, group.outages)

    async def _land(self, group: GroupInFlight, landed: Landed) -> None:
        group.phase = _Phase.WRITING
        await self._journal.land(group.request, landed)
        if landed.reverified:
            await self._reroll(group, FailureReason.VERIFIER_UNSCORABLE, landed.reverified)
        group.request = group.request.without(landed.samples)
        group.sample_ms = max(group.sample_ms, landed.sample_ms)
        group.verify_ms += landed.verify_ms
        for sample in landed.samples:
            metrics.ROWS.labels(sample.status).inc()
        self._settle(len(landed.samples))
        group.phase = _Phase.ASKED

    async def _reroll(self, group: GroupInFlight, reason: FailureReason, samples: int) -> None:
        await self._journal.reroll(group.request, reason, samples)
        metrics.REROLLS.labels(reason).inc(samples)

    async def _lose(self, group: GroupInFlight, failed: Failed) -> None:
        group.phase = _Phase.WRITING
        samples = len(group.request.sample_indices)
        if not samples:  # it was cut just after its last sample had landed
            return
        await self._journal.lose(group.request, failed)
        metrics.LOSSES.labels(failed.reason).inc(samples)
        self._settle(samples)

    def _settle(self, samples: int) -> None:
        if self._clock is not None:
            self._clock.settle(samples)
