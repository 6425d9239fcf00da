"""Samplings: started, driven to their end, paused, resumed, cancelled. Only what has no row yet is ever asked."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

import psycopg

from services.rollout.grounds import Grounds, group_requests
from services.rollout.ledger import told
from services.rollout.samplings.dispatch import Dispatcher
from services.rollout.samplings.gate import Gate
from services.rollout.samplings.pace import Pace
from services.rollout.samplings.policies import policy_of
from services.rollout.samplings.records import BATCH_PREFIX, NewSampling, SamplingRecord
from services.rollout.samplings.tasks import choose, planned, task_set_digest
from services.rollout.worker.groups import Failed, FailureReason, GroupRequest, Landed
from shared.contracts.rollout import Progress, Purpose, Row, Sampling, SamplingRequest, SamplingState
from shared.domain import system_prompt
from shared.errors import Conflict, Invalid, NotFound, ServiceError
from shared.ids import sha256_hex

log = logging.getLogger(__name__)

RESTART_SECONDS = 5.0
"""A sampling that broke off (a database that stayed away, a service gone) is gone on with after this wait."""

EVENT_SECONDS = 5.0
"""Progress is told at least this often."""

EVENT_GAP_SECONDS = 0.5
"""And at most this often."""


class SamplingService:
    """One per coordinator."""

    def __init__(self, grounds: Grounds) -> None:
        self._grounds = grounds
        self._repository = grounds.repository
        self._running: dict[str, asyncio.Task[None]] = {}
        self._paces: dict[str, Pace] = {}
        self._changed: dict[str, asyncio.Event] = {}

    async def start(self, request: SamplingRequest, api_key: str | None = None) -> Sampling:
        """Start a sampling, or go on with one. Raises Invalid, Conflict, Unavailable.

        `api_key` is of the request's endpoint; kept in this process only.
        """
        if request.purpose is Purpose.BATCH or request.sampling_id.startswith(BATCH_PREFIX):
            raise Invalid(f"training batches, and ids that begin with {BATCH_PREFIX!r}, belong to POST /v1/batches")
        self._grounds.keys.check(request, api_key)
        record = await self._repository.find(request.sampling_id)
        if record is None:
            await self._create(request)
            record = await self._record(request.sampling_id)
        if record.request != request:
            raise Conflict(
                f"sampling {request.sampling_id!r} exists with another body (its {record.landed} rows are kept): "
                f"{changed_fields(record.request, request)}. Choose another id, or repeat the first body"
            )
        if api_key is not None:
            self._grounds.keys.keep(request.sampling_id, api_key)
        if record.landed < record.wanted and record.sampling_id not in self._running:
            await self._repository.forget_losses(record.sampling_id)
            await self._repository.set_state(record.sampling_id, SamplingState.RUNNING)
            self._launch(record.sampling_id)
        return await self.get(request.sampling_id)

    async def _create(self, request: SamplingRequest) -> None:
        if request.endpoint is not None:
            await self._grounds.check_endpoint(request.endpoint)
        bundle = self._grounds.bundle(request.domain)
        policy = await policy_of(request, self._grounds.inference)
        tasks = choose(await self._grounds.tasks.all(request.domain), request)
        prompt = system_prompt(bundle, request.regime)
        await self._repository.create(
            NewSampling(
                request=request,
                policy=policy,
                task_set_digest=task_set_digest(tasks),
                system_prompt=prompt,
                prompt_hash=sha256_hex(prompt),
                bundle_digest=bundle.digest,
                tasks=tuple(planned(task) for task in tasks),
            )
        )

    async def _record(self, sampling_id: str) -> SamplingRecord:
        record = await self._repository.find(sampling_id)
        if record is None:
            raise NotFound(f"there is no sampling {sampling_id!r}")
        return record

    async def get(self, sampling_id: str) -> Sampling:
        """How it stands. Raises NotFound."""
        record = await self._record(sampling_id)
        if sampling_id not in self._running:
            return sampling_of(record, 0.0, 0.0)
        found = sampling_of(record, *self._paces[sampling_id].rates())
        if trouble := self._repository.trouble:  # rows wait for a database that can be read and takes none
            return found.model_copy(update={"state": SamplingState.PAUSED, "error": trouble})
        return found

    async def cancel(self, sampling_id: str) -> Sampling:
        """Stop it; rows that landed stay. Raises NotFound."""
        record = await self._record(sampling_id)
        if record.state in (SamplingState.RUNNING, SamplingState.PAUSED):
            await self._repository.set_state(sampling_id, SamplingState.CANCELLED)
            task = self._running.get(sampling_id)
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            self._tell(sampling_id)
        return await self.get(sampling_id)

    async def newest(self, limit: int) -> list[Sampling]:
        """The newest samplings that are no training batches."""
        return [sampling_of(record, 0.0, 0.0) for record in await self._repository.newest(limit)]

    async def void(self, sampling_id: str, reason: str) -> Sampling:
        """Withdraw it; said again, the newer reason stands. Raises NotFound."""
        await self._record(sampling_id)
        await self._repository.void(sampling_id, reason)
        return await self.get(sampling_id)

    async def rows(self, sampling_id: str) -> AsyncIterator[Row]:
        """Every row that has landed. Raises NotFound before the first."""
        return self._grounds.rows.rows(await self._record(sampling_id))

    async def events(self, sampling_id: str) -> AsyncIterator[Sampling]:
        """Progress as it changes and at least every 5 s, until the sampling is at its end."""
        while True:
            event = self._changed.setdefault(sampling_id, asyncio.Event())
            sampling = await self.get(sampling_id)
            yield sampling
            if sampling.state not in (SamplingState.RUNNING, SamplingState.PAUSED):
                return
            await asyncio.sleep(EVENT_GAP_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), EVENT_SECONDS - EVENT_GAP_SECONDS)

    def _tell(self, sampling_id: str) -> None:
        event = self._changed.pop(sampling_id, None)
        if event is not None:
            event.set()

    async def resume_unfinished(self) -> None:
        """Go on with what a stopped coordinator left; waits for a database that is not up yet."""
        while True:
            try:
                for sampling_id in await self._repository.unfinished():
                    self._launch(sampling_id)
                return
            except psycopg.Error as error:
                log.warning("control database: %s; unfinished samplings wait", error)
                await asyncio.sleep(RESTART_SECONDS)

    async def close(self) -> None:
        """Cancel what runs; the ledger has what landed, and the next coordinator goes on."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _launch(self, sampling_id: str) -> None:
        if sampling_id in self._running:
            return
        self._paces[sampling_id] = Pace(time.monotonic)
        task = asyncio.create_task(self._drive(sampling_id), name=f"sampling {sampling_id}")
        self._running[sampling_id] = task
        task.add_done_callback(lambda _: self._ended(sampling_id))

    def _ended(self, sampling_id: str) -> None:
        self._running.pop(sampling_id, None)
        self._paces.pop(sampling_id, None)
        self._tell(sampling_id)

    async def _drive(self, sampling_id: str) -> None:
        """To its end, whatever breaks on the way."""
        while True:
            try:
                record = await self._record(sampling_id)
                await self._sample_missing(record)
                return
            except Invalid as error:
                await self._repository.set_state(sampling_id, SamplingState.FAILED, error.detail)
                return
            except (ServiceError, psycopg.Error) as error:
                log.warning("sampling %s broke off, goes on in %.0f s: %s", sampling_id, RESTART_SECONDS, error)
                reason = error.detail if isinstance(error, ServiceError) else told(error)
                with contextlib.suppress(psycopg.Error):
                    await self._repository.set_state(sampling_id, SamplingState.PAUSED, reason)
                self._tell(sampling_id)
                await asyncio.sleep(RESTART_SECONDS)
            except Exception as error:
                log.exception("sampling %s failed", sampling_id)
                await self._repository.set_state(
                    sampling_id, SamplingState.FAILED, f"{type(error).__name__}: {error}; rows that landed are kept"
                )
                return

    async def _sample_missing(self, record: SamplingRecord) -> None:
        sampling_id, request = record.sampling_id, record.request
        journal = _SamplingJournal(self, record)
        gate = Gate(self._grounds.obstacle(record), journal.paused)
        await gate.check()
        missing = await self._repository.missing(sampling_id, request.parameters.k)
        golds = await self._grounds.tasks.some(request.domain, [group.task.task_id for group in missing])
        for group in missing:
            if group.task.task_id not in golds:
                gone = Failed(FailureReason.TASK_GONE, "the author's tasks changed since the sampling started")
                await journal.give_up(group.task.task_id, len(group.sample_indices), gone)
        sandbox = await self._grounds.prepare_sandbox(record, self._grounds.bundle(request.domain))
        await self._repository.set_state(sampling_id, SamplingState.RUNNING)
        dispatcher = Dispatcher(
            self._grounds.sampler, journal, gate, self._grounds.retry, self._grounds.limit_of(record)
        )
        async for _ in dispatcher.run(group_requests(record, missing, golds, sandbox, self._grounds.keys)):
            self._tell(sampling_id)
        await self._finish(sampling_id)
        with contextlib.suppress(Exception):  # the verifier's own time limit removes it otherwise
            await self._grounds.verifier.delete_sandbox(sandbox.sandbox_id)

    async def _finish(self, sampling_id: str) -> None:
        record = await self._record(sampling_id)
        if record.landed:
            await self._repository.set_state(sampling_id, SamplingState.DONE)
            return
        detail = await self._repository.loss_detail(sampling_id)
        await self._repository.set_state(sampling_id, SamplingState.FAILED, f"every sample was lost: {detail}")

    def count_landed(self, sampling_id: str, rows: int, tokens: int) -> None:
        """Feed the rates."""
        if sampling_id in self._paces:
            self._paces[sampling_id].add(rows, tokens)

    async def note_pause(self, sampling_id: str, reason: str | None) -> None:
        """A pause and why, or its end."""
        if reason is None:
            await self._repository.set_state(sampling_id, SamplingState.RUNNING)
        else:
            await self._repository.set_state(sampling_id, SamplingState.PAUSED, reason)
        self._tell(sampling_id)


class _SamplingJournal:
    """Writes a sampling's outcomes into the ledger."""

    def __init__(self, service: SamplingService, record: SamplingRecord) -> None:
        self._service = service
        self._repository = service._repository
        self._sampling_id = record.sampling_id

    async def land(self, request: GroupRequest, landed: Landed) -> None:
        new = await self._repository.land(self._sampling_id, request.task_id, landed)
        self._service.count_landed(self._sampling_id, new, landed.tokens)

    async def reroll(self, request: GroupRequest, reason: FailureReason, samples: int) -> None:
        await self._repository.add_rerolls(self._sampling_id, reason, samples)

    async def lose(self, request: GroupRequest, failed: Failed) -> None:
        await self.give_up(request.task_id, len(request.sample_indices), failed)

    async def give_up(self, task_id: str, samples: int, failed: Failed) -> None:
        await self._repository.add_loss(self._sampling_id, task_id, failed.reason, failed.detail, samples)

    async def paused(self, reason: str | None) -> None:
        await self._service.note_pause(self._sampling_id, reason)


def changed_fields(old: SamplingRequest, new: SamplingRequest) -> str:
    """Which fields of two requests differ, with both values."""
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    return "; ".join(f"`{name}` was {before[name]}, is {after[name]}" for name in before if before[name] != after[name])


def sampling_of(record: SamplingRecord, rows_per_second: float, tokens_per_second: float) -> Sampling:
    """The contract's view of a record."""
    left = record.wanted - record.landed - sum(record.lost.values())
    running = record.state in (SamplingState.RUNNING, SamplingState.PAUSED)
    return Sampling(
        sampling_id=record.sampling_id,
        request=record.request,
        state=record.state,
        progress=Progress(
            wanted=record.wanted,
            landed=record.landed,
            rerolled=sum(record.rerolls.values()),
            rerolls=record.rerolls,
            lost=record.lost,
            rows_per_second=rows_per_second,
            tokens_per_second=tokens_per_second,
            eta_seconds=left / rows_per_second if running and rows_per_second > 0 else None,
        ),
        policy_name=record.policy.served_model,
        adapter_digest=record.policy.adapter_digest,
        task_set_digest=record.task_set_digest,
        prompt_hash=record.prompt_hash,
        error=record.error,
        void_reason=record.void_reason,
        created_at=record.created_at,
        finished_at=record.finished_at,
    )
