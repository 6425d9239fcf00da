"""A worker's job: one group, from prompt to verdicts. Failure is data; nothing is scored 0 because something broke."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from weakref import WeakValueDictionary

from services.rollout.worker.completion import Choice, CompletionFault
from services.rollout.worker.endpoint_models import EndpointModels
from services.rollout.worker.generation import Part, generate
from services.rollout.worker.groups import Failed, GroupRequest, Landed, Sample
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient
from shared.clients.verifier import VerifierClient
from shared.contracts.rollout import ModelEndpoint
from shared.contracts.verifier import SandboxRequest, Status, Verdict, VerifyItem, VerifyRequest
from shared.egress import EgressRule
from shared.unicode import storable

UNSCORABLE_RETRIES = 2
"""An unscorable verdict is asked again this often: a sandbox that died is back by then; a broken gold stays broken."""

RETRY_WAIT_SECONDS = 1.0


class GroupSampler:
    """Samples and verifies groups, many at once."""

    def __init__(
        self, inference: InferenceClient, verifier: VerifierClient, patience_seconds: float, egress: EgressRule
    ) -> None:
        self._inference = inference
        self._verifier = verifier
        self._patience_seconds = patience_seconds
        """How long replies wait for a verifier that is away."""
        self._endpoints = EndpointModels(egress)
        self._cuts: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        """By sampling; an event lives as long as a group that waits for it."""

    async def close(self) -> None:
        """Give back the connections it opened itself."""
        await self._endpoints.close()

    def cut(self, sampling_id: str) -> None:
        """End the generation of a sampling's groups in flight: what has ended is verified and landed."""
        event = self._cuts.pop(sampling_id, None)
        if event is not None:
            event.set()

    async def sample(self, request: GroupRequest) -> AsyncGenerator[Landed | Failed, None]:
        """One group: its replies as they are verified, in one call unless some lag, then why others are missing.

        Never raises for an infrastructure failure.
        """
        started = time.perf_counter()
        try:
            async with contextlib.aclosing(self._parts(request)) as parts:
                async for part in parts:
                    yield part if isinstance(part, Failed) else await self._landed(request, part, started)
        except CompletionFault as fault:
            yield Failed(fault.reason, str(fault))

    def _parts(self, request: GroupRequest) -> AsyncGenerator[Part | Failed, None]:
        if request.endpoint is not None:
            return self._parts_elsewhere(request, request.endpoint)
        cut = self._cuts.get(request.sampling_id)
        if cut is None:
            cut = self._cuts[request.sampling_id] = asyncio.Event()
        return generate(request, self._inference, cut)

    async def _parts_elsewhere(
        self, request: GroupRequest, endpoint: ModelEndpoint
    ) -> AsyncGenerator[Part | Failed, None]:
        came, failed = await self._endpoints.generate(request, endpoint)
        if came:
            yield Part(came, [])
        if failed is not None:
            yield failed

    async def _landed(self, request: GroupRequest, part: Part, started: float) -> Landed:
        sampled = time.perf_counter()
        verdicts, reverified = await self._verify(request, list(part.choices.values()))
        return Landed(
            prompt_token_ids=part.prompt_token_ids,
            samples=tuple(
                _sample(request.sample_indices[place], choice, verdict)
                for (place, choice), verdict in zip(part.choices.items(), verdicts, strict=True)
            ),
            sample_ms=(sampled - started) * 1000,
            verify_ms=(time.perf_counter() - sampled) * 1000,
            served_model=request.served_model,
            adapter_digest=request.adapter_digest,
            reverified=reverified,
        )

    async def _verify(self, request: GroupRequest, choices: list[Choice]) -> tuple[list[Verdict], int]:
        """A verdict per reply; unscorable ones are asked again, and only they: how many is the second value."""
        items = [
            VerifyItem(
                item_id=str(place),
                reply=storable(choice.reply),  # the verdict is on the text that the ledger keeps
                finish_reason=choice.finish_reason,
                gold=request.gold,
                order_matters=request.order_matters,
            )
            for place, choice in enumerate(choices)
        ]
        verdicts = await self._verify_once(request, items)
        reverified = 0
        for _ in range(UNSCORABLE_RETRIES):
            again = [place for place, verdict in enumerate(verdicts) if verdict.status is Status.UNSCORABLE]
            if not again:
                break
            await asyncio.sleep(RETRY_WAIT_SECONDS)
            found = await self._verify_once(request, [items[place] for place in again])
            for place, verdict in zip(again, found, strict=True):
                verdicts[place] = verdict
            reverified += len(again)
        return verdicts, reverified

    async def _verify_once(self, request: GroupRequest, items: list[VerifyItem]) -> list[Verdict]:
        """One answered verify call. A verifier that is away is waited for; a lost sandbox is made again."""
        sandbox = request.sandbox
        deadline = time.monotonic() + self._patience_seconds
        remade = False
        while True:
            try:
                asked = VerifyRequest(profile=request.profile, items=items)
                return (await self._verifier.verify(sandbox.sandbox_id, asked)).verdicts
            except (ServiceProblem, ServiceUnreachable) as error:
                status = error.problem.status if isinstance(error, ServiceProblem) else 503
                passing = status in (404, 408, 425, 429) or status >= 500
                if not passing or time.monotonic() > deadline:
                    reason = f"the verifier did not answer ({type(error).__name__}, {status})"
                    return [unscorable(item, reason) for item in items]
            if status == 404 and not remade:
                with contextlib.suppress(ServiceProblem, ServiceUnreachable):  # asked again until patience ends
                    await self._verifier.create_sandbox(
                        SandboxRequest(sandbox_id=sandbox.sandbox_id, run_id=sandbox.run_id, domain=sandbox.domain)
                    )
                    remade = True
                    continue
            remade = False
            await asyncio.sleep(RETRY_WAIT_SECONDS)


def _sample(index: int, choice: Choice, verdict: Verdict) -> Sample:
    return Sample(
        sample_index=index,
        reply=choice.reply,
        token_ids=choice.token_ids,
        logprobs=choice.logprobs,
        finish_reason=choice.finish_reason,
        status=verdict.status,
        reward=verdict.reward,
        sql=verdict.sql,
        reason=verdict.reason,
        sqlstate=verdict.sqlstate,
        reported_tokens=choice.reported_tokens,
    )


def unscorable(item: VerifyItem, reason: str) -> Verdict:
    """The verdict of an item that nothing could be found out about."""
    return Verdict(item_id=item.item_id, status=Status.UNSCORABLE, reward=None, sql=None, reason=reason)
