"""A worker's job: one group, from prompt to verdicts. Failure is data; nothing is scored 0 because something broke."""

import asyncio
import contextlib
import time

import httpx

from services.rollout.completion import Completion, CompletionFault, read_completion, request_body
from services.rollout.groups import Failed, FailureReason, GroupRequest, Landed, Sample
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import SandboxRequest, Status, Verdict, VerifyItem, VerifyRequest

UNSCORABLE_RETRIES = 2
"""An unscorable verdict is asked again this often: a sandbox that died is back by then; a broken gold stays broken."""

RETRY_WAIT_SECONDS = 1.0


async def sample_group(
    request: GroupRequest, inference: InferenceClient, verifier: VerifierClient, patience_seconds: float
) -> Landed | Failed:
    """Sample one group and verify its replies in one call. Replies wait `patience_seconds` for a lost verifier."""
    started = time.perf_counter()
    try:
        response = await inference.chat(request_body(request), request.draw.timeout_seconds)
        completion = read_completion(request, response.headers, response.content)
    except CompletionFault as fault:
        return Failed(fault.reason, str(fault))
    except (ServiceProblem, ServiceUnreachable) as error:
        return Failed(_reason(error), str(error)[:500])
    sampled = time.perf_counter()
    verdicts = await _verify(request, completion, verifier, patience_seconds)
    verified = time.perf_counter()
    samples = tuple(
        Sample(
            sample_index=index,
            reply=choice.reply,
            token_ids=choice.token_ids,
            logprobs=choice.logprobs,
            finish_reason=choice.finish_reason,
            status=verdict.status,
            reward=verdict.reward,
            sql=verdict.sql,
            reason=verdict.reason,
        )
        for index, choice, verdict in zip(request.sample_indices, completion.choices, verdicts, strict=True)
    )
    return Landed(
        prompt_token_ids=completion.prompt_token_ids,
        samples=samples,
        sample_ms=(sampled - started) * 1000,
        verify_ms=(verified - sampled) * 1000,
        served_model=request.served_model,
        adapter_digest=request.adapter_digest,
    )


def _reason(error: ServiceProblem | ServiceUnreachable) -> FailureReason:
    if isinstance(error, ServiceUnreachable):
        timed_out = isinstance(error.__cause__, httpx.ReadTimeout)
        return FailureReason.TIMEOUT if timed_out else FailureReason.ENGINE_UNREACHABLE
    if error.problem.status in (404, 409):
        return FailureReason.POLICY_NOT_SERVED
    if error.problem.status in (408, 425, 429) or error.problem.status >= 500:
        return FailureReason.ENGINE_ERROR
    return FailureReason.ENGINE_REFUSED


async def _verify(
    request: GroupRequest, completion: Completion, verifier: VerifierClient, patience_seconds: float
) -> list[Verdict]:
    """A verdict per reply; unscorable ones are asked again, and only they."""
    items = [
        VerifyItem(
            item_id=str(index),
            reply=choice.reply,
            finish_reason=choice.finish_reason,
            gold=request.gold,
            order_matters=request.order_matters,
        )
        for index, choice in zip(request.sample_indices, completion.choices, strict=True)
    ]
    verdicts: list[Verdict | None] = [None] * len(items)
    for attempt in range(UNSCORABLE_RETRIES + 1):
        open_items = [at for at, found in enumerate(verdicts) if found is None or found.status is Status.UNSCORABLE]
        if not open_items:
            break
        if attempt:
            await asyncio.sleep(RETRY_WAIT_SECONDS)
        asked = VerifyRequest(profile=request.profile, items=[items[at] for at in open_items])
        found = await _verify_once(request, asked, verifier, patience_seconds)
        for at, verdict in zip(open_items, found, strict=True):
            verdicts[at] = verdict
    return [verdict for verdict in verdicts if verdict is not None]


async def _verify_once(
    request: GroupRequest, asked: VerifyRequest, verifier: VerifierClient, patience_seconds: float
) -> list[Verdict]:
    """One answered verify call. A verifier that is away is waited for; a lost sandbox is made again."""
    sandbox = request.sandbox
    deadline = time.monotonic() + patience_seconds
    remade = False
    while True:
        try:
            return (await verifier.verify(sandbox.sandbox_id, asked)).verdicts
        except (ServiceProblem, ServiceUnreachable) as error:
            status = error.problem.status if isinstance(error, ServiceProblem) else 503
            passing = status in (404, 408, 425, 429) or status >= 500
            if not passing or time.monotonic() > deadline:
                reason = f"the verifier did not answer ({type(error).__name__}, {status})"
                return [unscorable(item, reason) for item in asked.items]
        if status == 404 and not remade:
            with contextlib.suppress(ServiceProblem, ServiceUnreachable):  # asked again until patience ends
                await verifier.create_sandbox(
                    SandboxRequest(sandbox_id=sandbox.sandbox_id, run_id=sandbox.run_id, domain=sandbox.domain)
                )
                remade = True
                continue
        remade = False
        await asyncio.sleep(RETRY_WAIT_SECONDS)


def unscorable(item: VerifyItem, reason: str) -> Verdict:
    """The verdict of an item that nothing could be found out about."""
    return Verdict(item_id=item.item_id, status=Status.UNSCORABLE, reward=None, sql=None, reason=reason)
