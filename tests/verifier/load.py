"""Concurrent verifications whose verdicts are known, for tests that kill things under them.

Each item is a statement of its own (nothing is answered from a cache) that runs for some 10 ms, so that kills land
among statements in flight. Whatever is killed, an item's verdict is the right one or `unscorable`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import SandboxRequest, Status, Verdict, VerifyItem, VerifyRequest
from tests.verifier.store import MAIN, SCHEMA, BundleSource

BUNDLE = BundleSource(name="bookstore", schema_sql=SCHEMA, seed_sql=MAIN)
WORK = "(SELECT count(*) FROM " + ", ".join(f"book b{i}" for i in range(10)) + ")"
"""About 60,000 rows."""

GOLD = "SELECT name FROM author WHERE id = 1"
STATEMENTS = {
    Status.MATCH: GOLD + " AND {} < " + WORK,
    Status.MISMATCH: "SELECT name FROM author WHERE id = 2 AND {} < " + WORK,
    Status.SQL_ERROR: "SELECT 1 / (id - id) FROM author WHERE {} < " + WORK,
}
REASONS = {Status.SQL_ERROR: "division by zero"}
"""The one reason an SQL error may have."""

AGAIN_SECONDS = 0.2
"""Wait before a verifier that is away is asked again."""


@dataclass
class Tally:
    """What became of the items."""

    right: int = 0
    unscorable: int = 0
    wrong: list[Verdict] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """Of the unscorable ones."""
    unreachable: int = 0
    """Calls that got no answer and were made again."""
    remade: int = 0
    """Sandboxes made again after the verifier forgot them."""

    def add(self, expected: Status, verdict: Verdict) -> None:
        """Judge one verdict."""
        if verdict.status is Status.UNSCORABLE and verdict.reward is None:
            self.unscorable += 1
            self.reasons[verdict.reason] += 1
        elif verdict.status is expected and REASONS.get(expected, "") in verdict.reason:
            self.right += 1
        else:
            self.wrong.append(verdict)


async def verify_all(client: VerifierClient, sandbox: SandboxRequest, count: int, first: int, tally: Tally) -> None:
    """`count` single-item requests at once, each asked until it is answered. Item numbers start at `first`."""

    async def one(number: int) -> None:
        expected = list(STATEMENTS)[number % len(STATEMENTS)]
        item = VerifyItem(sql=STATEMENTS[expected].format(-1 - number), gold=GOLD)
        verdict = await _answer(client, sandbox, VerifyRequest(items=[item]), tally)
        tally.add(expected, verdict)

    await asyncio.gather(*(one(first + number) for number in range(count)))


async def _answer(client: VerifierClient, sandbox: SandboxRequest, request: VerifyRequest, tally: Tally) -> Verdict:
    """As the rollout's worker does: a verifier that is away is waited for, a sandbox that it lost is made again."""
    while True:
        try:
            return (await client.verify(sandbox.sandbox_id or "", request)).verdicts[0]
        except ServiceUnreachable:
            tally.unreachable += 1
            await asyncio.sleep(AGAIN_SECONDS)
        except ServiceProblem as problem:
            if problem.problem.status != 404:
                raise
            tally.remade += 1
            await _until_reachable(lambda: client.create_sandbox(sandbox))


async def _until_reachable(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await call()
            return
        except ServiceUnreachable:
            await asyncio.sleep(AGAIN_SECONDS)
