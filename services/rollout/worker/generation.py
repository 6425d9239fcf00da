"""One group's generation at the gateway: read until all replies have ended, or until something cuts it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from services.rollout.worker.completion import END, Choice, GroupReading, check_answer, request_body
from services.rollout.worker.groups import Failed, FailureReason, GroupRequest
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient

LOOK_SECONDS = 0.25
"""Between two looks at a group in progress."""

QUIET_SECONDS = 0.25
QUIET_SHARE = 0.1
"""When no reply ended for this share of the group's time so far (or the shortest, above), those that have are given
out: a batch must know what it has, and a crash loses less. Groups of like replies are given out whole, at their end."""

_BY_STATUS: Mapping[int, FailureReason] = {
    400: FailureReason.ENGINE_REFUSED,
    413: FailureReason.ENGINE_REFUSED,
    422: FailureReason.ENGINE_REFUSED,
    404: FailureReason.POLICY_NOT_SERVED,
    409: FailureReason.POLICY_NOT_SERVED,
    429: FailureReason.ENGINE_BUSY,
}
"""Any other status is the engine's or the gateway's own failure, also a token that it does not take (401, 403)."""


@dataclass(frozen=True)
class Part:
    """Replies that ended since the part before, by their place in the group."""

    choices: Mapping[int, Choice]
    prompt_token_ids: list[int]


async def generate(
    request: GroupRequest, inference: InferenceClient, cut: asyncio.Event
) -> AsyncGenerator[Part | Failed, None]:
    """The replies as they end, then why others are missing. Raises CompletionFault when none may be used.

    `cut` ends it early, the group's budget in any case; both free the engine of what it has not finished.
    """
    reading, budget = GroupReading(request), request.draw.timeout_seconds
    loop = asyncio.get_running_loop()
    started = changed = loop.time()
    ended, given = 0, set[int]()
    read = asyncio.ensure_future(_read(request, inference, reading))
    cutting = asyncio.ensure_future(cut.wait())
    try:
        over = False
        while not over:
            await asyncio.wait({read, cutting}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            now, failed = loop.time(), None
            complete = len(reading.ended) == len(request.sample_indices)  # also when the stream's end hangs
            over = complete or read.done() or cutting.done() or now - started >= budget
            if read.done():
                failed = read.result()
            elif cutting.done():
                failed = Failed(FailureReason.STRAGGLER, "the rest of its batch had long landed")
            elif over:
                failed = Failed(FailureReason.TIMEOUT, f"not finished within its budget of {budget:.0f} s")
            if over:
                read.cancel()  # at once: the engine is free while the replies are verified
            if len(reading.ended) > ended:
                ended, changed = len(reading.ended), now
            quiet = now - changed >= max(QUIET_SECONDS, QUIET_SHARE * (now - started))
            fresh = {place: choice for place, choice in reading.ended.items() if place not in given}
            if fresh and (over or quiet):
                given |= fresh.keys()
                yield Part(fresh, reading.prompt_token_ids)
            if failed is not None and len(given) < len(request.sample_indices):
                yield failed
    finally:
        for task in (read, cutting):
            task.cancel()
        await asyncio.gather(read, cutting, return_exceptions=True)


async def _read(request: GroupRequest, inference: InferenceClient, reading: GroupReading) -> Failed | None:
    """To the end of the stream; a stream that breaks off leaves what it had brought. Raises CompletionFault."""
    try:
        async with (
            inference.chat_stream(request_body(request)) as stream,
            contextlib.aclosing(stream.events) as events,
        ):
            check_answer(request, stream.headers)
            async for data in events:
                if data == END:
                    return reading.shortfall()
                reading.add(data)
    except ServiceUnreachable as error:
        return Failed(FailureReason.ENGINE_UNREACHABLE, str(error)[:500])
    except ServiceProblem as error:
        return Failed(_BY_STATUS.get(error.problem.status, FailureReason.ENGINE_ERROR), str(error)[:500])
    return Failed(FailureReason.ENGINE_ERROR, "the engine's event stream ended without its last event")
