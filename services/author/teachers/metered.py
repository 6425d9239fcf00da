"""A model whose every call is written down before it is made, paid from a budget, paced, and never made twice.

What a killed author leaves is told from the ledger: a call that landed is answered from there; a proposing call whose
reply had begun to arrive keeps what had arrived and is closed; any other is sent once more, under the same
`Idempotency-Key`. Only the last may be billed twice, by a provider that ignores the key: it is counted as doubt.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

from services.author.metrics import CALLS, DOLLARS, TOKENS
from services.author.teachers.base import OverBudget, TeacherError
from services.author.teachers.cells import Cell
from services.author.teachers.endpoint import Completion, ModelEndpoint, Outcome
from services.author.teachers.pricing import Price, Usage, cost_of, tokens_of, worst_cost
from services.author.teachers.prompt import Prompt

KEEP_SECONDS = 0.5
"""How often a growing reply is stored after its first piece: a kill loses at most what arrived since."""

CUT_ATTEMPTS = 3
"""Sendings of a call whose parts are of no use, when every stream breaks off."""


@dataclass(frozen=True)
class Call:
    """One call as it is decided on. `key` names it within its authoring, for good."""

    key: str
    purpose: str
    """`propose` or `attempt`."""
    user: str
    """The part of the prompt that is its own."""
    number: int = 0
    cell: Cell | None = None
    proposals: int = 0
    """How many it asks for."""

    @property
    def parts_count(self) -> bool:
        """Whether a reply that broke off is worth what it holds: half an attempt is no opinion."""
        return self.purpose == "propose"


@dataclass(frozen=True)
class StoredCall:
    """A call as the ledger has it."""

    call: Call
    in_flight: bool
    """Sent by an author that did not live to see the end; neither settled nor withdrawn."""
    text: str
    """What had arrived."""
    completion: Completion | None
    """None until it is settled."""


class Ledger(Protocol):
    """The calls of one authoring, stored before and after they are made. Fails once another author owns it."""

    async def find(self, key: str) -> StoredCall | None:
        """One call."""
        ...

    async def proposing(self) -> list[StoredCall]:
        """Every proposing call, by number."""
        ...

    async def spent_usd(self) -> float:
        """Paid and in doubt together."""
        ...

    async def intend(self, call: Call, prompt_hash: str, doubt_usd: float, doubted: bool) -> None:
        """The call is about to be sent. `doubted`: it was before, which may have been billed `doubt_usd` at most."""
        ...

    async def arrived(self, key: str, text: str) -> None:
        """The reply so far."""
        ...

    async def land(self, key: str, model: str, completion: Completion, cost_usd: float | None) -> None:
        """The reply and what it cost; None: the price is unknown."""
        ...

    async def withdraw(self, key: str) -> None:
        """No reply began and the provider said why: nothing was billed."""
        ...


class Budget:
    """Money of one authoring. A call reserves the most that it can cost, and settles what it did cost."""

    def __init__(self, max_usd: float | None, spent_usd: float) -> None:
        self._max_usd = max_usd
        self._spent_usd = spent_usd
        self._reserved_usd = 0.0
        self._changed = asyncio.Condition()

    async def reserve(self, usd: float) -> None:
        """Wait until the call is sure to fit. Raises OverBudget when it cannot even with no other call out."""
        async with self._changed:
            while self._max_usd is not None and self._spent_usd + self._reserved_usd + usd > self._max_usd:
                if not self._reserved_usd:
                    raise OverBudget(
                        f"`max_cost_usd` {self._max_usd:g} might be exceeded: ${self._spent_usd:.4f} is spent and the "
                        f"next call may cost ${usd:.4f}"
                    )
                await self._changed.wait()
            self._reserved_usd += usd

    async def settle(self, reserved_usd: float, cost_usd: float) -> None:
        """The call has ended."""
        async with self._changed:
            self._reserved_usd = max(0.0, self._reserved_usd - reserved_usd)
            if self._reserved_usd < 1e-9:  # what is left of rounding would wait for ever
                self._reserved_usd = 0.0
            self._spent_usd += cost_usd
            self._changed.notify_all()


class Pace:
    """At most so many calls a minute, evenly spaced; shared by all authorings of one provider. 0: no limit."""

    def __init__(self, calls_per_minute: int) -> None:
        self._seconds = 60.0 / calls_per_minute if calls_per_minute else 0.0
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for this call's turn."""
        now = time.monotonic()
        at = max(now, self._next)
        self._next = at + self._seconds
        if at > now:
            await asyncio.sleep(at - now)


class MeteredModel:
    """One authoring's use of a model."""

    def __init__(
        self,
        endpoint: ModelEndpoint,
        ledger: Ledger,
        budget: Budget,
        pace: Pace,
        price: Price | None,
        id_prefix: str,
        concurrency: int,
    ) -> None:
        self._endpoint = endpoint
        self.ledger = ledger
        self._budget = budget
        self._pace = pace
        self._price = price
        self._id_prefix = id_prefix
        self._slots = asyncio.Semaphore(concurrency)

    async def ask(self, call: Call, system: str, max_tokens: int, structured: bool) -> Completion:
        """The reply, made at most once. A stored call's own words are sent, whatever `call.user` says.

        Raises TeacherError, OverBudget.
        """
        async with self._slots:
            stored = await self.ledger.find(call.key)
            if stored is not None and stored.completion is not None:
                return stored.completion
            user = call.user if stored is None else stored.call.user
            prompt = Prompt(system, user, structured)
            if stored is not None and stored.text and call.parts_count:
                words = prompt.system + prompt.user
                usage = Usage(tokens_of(words), tokens_of(stored.text), estimated=True)
                return await self._land(call, Completion(stored.text, Outcome.CUT, usage), 0.0)
            in_doubt = stored is not None and stored.in_flight
            for _ in range(CUT_ATTEMPTS):
                completion = await self._send(call, prompt, max_tokens, in_doubt)
                if completion is not None:
                    return completion
                in_doubt = True
            raise TeacherError(f"{self._endpoint.model} broke off {CUT_ATTEMPTS} replies in a row: try again later")

    async def _send(self, call: Call, prompt: Prompt, max_tokens: int, in_doubt: bool) -> Completion | None:
        """None for a reply that broke off and is of no use; its cost is in doubt then."""
        reserved = 0.0 if self._price is None else worst_cost(self._price, prompt.system + prompt.user, max_tokens)
        doubt = reserved if in_doubt else 0.0
        await self._budget.reserve(reserved + doubt)
        await self._budget.settle(doubt, doubt)
        try:
            await self._pace.turn()
            await self.ledger.intend(call, prompt.hash, doubt, in_doubt)
            try:
                completion = await self._receive(call, prompt, max_tokens)
            except TeacherError:
                CALLS.labels(self._endpoint.model, call.purpose, "failed").inc()
                await self.ledger.withdraw(call.key)
                raise
            if completion.outcome is Outcome.CUT and not call.parts_count:
                CALLS.labels(self._endpoint.model, call.purpose, "cut").inc()
                await self._budget.settle(reserved, 0.0)
                return None
            return await self._land(call, completion, reserved)
        except BaseException:
            await self._budget.settle(reserved, 0.0)
            raise

    async def _receive(self, call: Call, prompt: Prompt, max_tokens: int) -> Completion:
        """The reply, stored as it grows."""
        latest = kept = ""
        begun = asyncio.Event()

        def received(text: str) -> None:
            nonlocal latest
            latest = text
            begun.set()

        async def keep() -> None:
            nonlocal kept
            await begun.wait()
            while True:
                if latest != kept:
                    kept = latest
                    await self.ledger.arrived(call.key, kept)
                await asyncio.sleep(KEEP_SECONDS)

        keeping = asyncio.create_task(keep())
        try:
            return await self._endpoint.complete(prompt, f"{self._id_prefix}{call.key}", max_tokens, received)
        except asyncio.CancelledError:
            if latest != kept:
                await asyncio.shield(self.ledger.arrived(call.key, latest))
            raise
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)  # what it failed at, landing fails at too

    async def _land(self, call: Call, completion: Completion, reserved_usd: float) -> Completion:
        cost = None if self._price is None else cost_of(self._price, completion.usage)
        await asyncio.shield(self.ledger.land(call.key, self._endpoint.model, completion, cost))
        await self._budget.settle(reserved_usd, cost or 0.0)
        model, usage = self._endpoint.model, completion.usage
        CALLS.labels(model, call.purpose, completion.outcome).inc()
        for kind in ("input", "output", "cache_read", "cache_write"):
            TOKENS.labels(model, kind).inc(getattr(usage, kind))
        DOLLARS.labels(model).inc(cost or 0.0)
        return completion
