"""Training batches: a step's groups streamed as they finish, exactly once per (run, step), fenced by attempt."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

from services.rollout.batches.repository import BatchRepository
from services.rollout.batches.stragglers import BatchClock
from services.rollout.grounds import Grounds, group_requests
from services.rollout.samplings.dispatch import Dispatcher
from services.rollout.samplings.gate import Gate
from services.rollout.samplings.policies import PolicyGone, resolve_now
from services.rollout.samplings.records import Fence, NewSampling, Policy, SamplingRecord, batch_sampling_id
from services.rollout.samplings.repository import Repository
from services.rollout.samplings.tasks import named, planned, task_set_digest
from services.rollout.worker.groups import Failed, FailureReason, GroupRequest, Landed
from shared.contracts.rollout import (
    BatchEnd,
    BatchGroup,
    BatchRequest,
    BatchSample,
    Purpose,
    Row,
    SamplingParameters,
    SamplingRequest,
    SamplingState,
)
from shared.contracts.tasks import PrivilegedTask, Split
from shared.contracts.verifier import FinishReason, Status
from shared.domain import system_prompt
from shared.errors import Conflict, Invalid, ServiceError
from shared.ids import sha256_hex

log = logging.getLogger(__name__)

LONGEST_RUN_ID = 100
"""Characters: the batch's sampling id holds the run's."""


class BatchService:
    """One per coordinator."""

    def __init__(self, grounds: Grounds, batches: BatchRepository) -> None:
        self._grounds = grounds
        self._batches = batches

    async def open(self, request: BatchRequest) -> AsyncIterator[BatchGroup | BatchEnd]:
        """Check and claim; the answer streams the groups. Raises Invalid, Conflict, Fenced, Unavailable."""
        if len(request.run_id) > LONGEST_RUN_ID:
            raise Invalid(f"`run_id` may have {LONGEST_RUN_ID} characters")
        bundle = self._grounds.bundle(request.domain)
        tasks = named(await self._grounds.tasks.some(request.domain, request.task_ids), request.task_ids)
        refuse_holdout(tasks)
        policy = await resolve_now(request.policy, self._grounds.inference)
        if policy.adapter_digest != request.adapter_digest:
            raise Conflict(
                f"{request.policy} is served with adapter {policy.adapter_digest[:12]}, the trainer expects "
                f"{request.adapter_digest[:12]}; nothing was sampled. Publish the step's adapter again"
            )
        prompt = system_prompt(bundle, request.regime)
        fence = Fence(request.run_id, request.attempt)
        new = NewSampling(
            request=sampling_request(request),
            policy=Policy(policy.served_model, policy.adapter_digest),
            task_set_digest=task_set_digest(tasks),
            system_prompt=prompt,
            prompt_hash=sha256_hex(prompt),
            bundle_digest=bundle.digest,
            tasks=tuple(planned(task) for task in tasks),
        )
        await self._batches.claim(fence, request.step, request.refill, new)
        record = await self._grounds.repository.find(new.request.sampling_id)
        if record is None:
            raise Conflict("another attempt of the run replaced this batch; ask again")
        sandbox = await self._grounds.prepare_sandbox(record, bundle)
        missing = await self._grounds.repository.missing(record.sampling_id, request.k)
        if missing:
            await self._grounds.repository.forget_losses(record.sampling_id)
            await self._grounds.repository.set_state(record.sampling_id, SamplingState.RUNNING)
        requests = group_requests(record, missing, {task.id: task for task in tasks}, sandbox, self._grounds.keys)
        return self._stream(record, fence, requests)

    async def _stream(
        self, record: SamplingRecord, fence: Fence, requests: list[GroupRequest]
    ) -> AsyncIterator[BatchGroup | BatchEnd]:
        repository, k = self._grounds.repository, record.request.parameters.k
        journal = _BatchJournal(repository, record.sampling_id, fence)
        gate = Gate(self._grounds.obstacle(record, policy_comes_back=False), journal.paused)
        asked = {request.task_id for request in requests}
        replayed = record.landed
        finished, sample_ms, verify_ms = 0, 0.0, 0.0
        for task in await repository.tasks(record.sampling_id):
            if task.task_id not in asked:
                yield await self._group(record, task.task_id, k)
                finished += 1
        clock = BatchClock(
            self._grounds.stragglers, sum(len(request.sample_indices) for request in requests), time.monotonic
        )
        dispatcher = Dispatcher(self._grounds.sampler, journal, gate, self._grounds.retry, self._grounds.limit, clock)
        try:
            async with contextlib.aclosing(dispatcher.run(requests)) as done:
                async for group in done:
                    yield await self._group(record, group.request.task_id, k)
                    finished += 1
                    sample_ms = max(sample_ms, group.sample_ms)
                    verify_ms += group.verify_ms
        except PolicyGone as error:  # a cut stream is asked for again, and its trainer serves the policy first
            log.warning("batch %s ends early: %s", record.sampling_id, error)
            await journal.paused(str(error))
            return
        await repository.set_state(record.sampling_id, SamplingState.DONE)
        ended = await repository.find(record.sampling_id)
        yield BatchEnd(
            groups=finished,
            sample_seconds=sample_ms / 1000,
            verify_seconds=verify_ms / 1000,
            replayed_rows=replayed,
            lost=ended.lost if ended else {},
        )

    async def _group(self, record: SamplingRecord, task_id: str, k: int) -> BatchGroup:
        """A finished group as the ledger has it: what the trainer learns from is what was written."""
        rows = [row async for row in self._grounds.rows.rows(record, task_id)]
        return batch_group(task_id, rows, k)


class _BatchJournal:
    """Writes a batch's outcomes into the ledger, each under the fence."""

    def __init__(self, repository: Repository, sampling_id: str, fence: Fence) -> None:
        self._repository = repository
        self._sampling_id = sampling_id
        self._fence = fence

    async def land(self, request: GroupRequest, landed: Landed) -> None:
        await self._repository.land(self._sampling_id, request.task_id, landed, self._fence)

    async def reroll(self, request: GroupRequest, reason: FailureReason, samples: int) -> None:
        await self._repository.add_rerolls(self._sampling_id, reason, samples)

    async def lose(self, request: GroupRequest, failed: Failed) -> None:
        await self._repository.add_loss(
            self._sampling_id, request.task_id, failed.reason, failed.detail, len(request.sample_indices)
        )

    async def paused(self, reason: str | None) -> None:
        state = SamplingState.RUNNING if reason is None else SamplingState.PAUSED
        await self._repository.set_state(self._sampling_id, state, reason or "")


def refuse_holdout(tasks: list[PrivilegedTask]) -> None:
    """Raises Invalid when a task may not be trained on."""
    holdout = [task.id for task in tasks if task.split is not Split.TRAIN]
    if holdout:
        raise Invalid(f"{len(holdout)} tasks are of the holdout: {holdout[:5]}; nothing may be trained on them")


def sampling_request(request: BatchRequest) -> SamplingRequest:
    """A batch as the sampling that holds its rows: top-p 1, so that log-probabilities are of the policy itself."""
    return SamplingRequest(
        sampling_id=batch_sampling_id(request.run_id, request.step, request.refill),
        purpose=Purpose.BATCH,
        domain=request.domain,
        policy=request.policy,
        regime=request.regime,
        parameters=SamplingParameters(
            k=request.k, temperature=request.temperature, top_p=1.0, max_tokens=request.max_tokens, seed=request.seed
        ),
        profile=request.profile,
        split=Split.TRAIN,
        task_ids=request.task_ids,
    )


def batch_group(task_id: str, rows: list[Row], k: int) -> BatchGroup:
    """A group's k samples in order; one without a row is `unscorable`, with no ids and no reward."""
    by_index = {row.sample_index: row for row in rows}
    return BatchGroup(
        task_id=task_id,
        prompt_ids=rows[0].prompt_token_ids if rows else [],
        samples=[_sample(by_index[index]) if index in by_index else _lost(index) for index in range(k)],
    )


def _sample(row: Row) -> BatchSample:
    return BatchSample(
        sample_index=row.sample_index,
        completion_ids=row.token_ids,
        logprobs=row.logprobs,
        reward=row.reward,
        status=row.status,
        finish_reason=row.finish_reason,
        adapter_digest=row.adapter_digest,
    )


def _lost(sample_index: int) -> BatchSample:
    return BatchSample(
        sample_index=sample_index,
        completion_ids=[],
        logprobs=[],
        reward=None,
        status=Status.UNSCORABLE,
        finish_reason=FinishReason.ABORT,
        adapter_digest="",
    )


async def ndjson(lines: AsyncIterator[BatchGroup | BatchEnd], keepalive_seconds: float) -> AsyncIterator[str]:
    """Each item as one line; an empty line when nothing came for a while, so that no proxy cuts the stream.

    A refusal on the way (a newer attempt has begun) ends the stream without its `end` line: the same call made again
    answers with the refusal.
    """
    iterator = lines.__aiter__()
    pending: asyncio.Future[BatchGroup | BatchEnd] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(iterator))
            done, _ = await asyncio.wait([pending], timeout=keepalive_seconds)
            if not done:
                yield "\n"
                continue
            try:
                yield pending.result().model_dump_json() + "\n"
            except StopAsyncIteration:
                return
            except ServiceError as error:
                log.warning("batch stream ended: %s", error.detail)
                return
            pending = None
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
