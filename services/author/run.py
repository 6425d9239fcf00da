"""One authoring at work: the teacher proposes, what lands is judged and stored, batch by batch."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from services.author.gates.reasons import Reason
from services.author.grounds import Grounds, open_grounds
from services.author.judged import Judged
from services.author.judging import judge
from services.author.metrics import PROPOSALS
from services.author.repository import Repository
from services.author.second_opinion import second_opinions
from services.author.teachers.base import Assignment, Attempting, Phrasing, Proposal, Teacher, Unreadable
from shared.clients.verifier import VerifierClient
from shared.contracts.author import AuthoringRequest
from shared.domain import Bundle
from shared.ids import sha256_hex

BATCH_GOLDS = 160
"""Golds judged and stored together at most: a kill loses no more verdicts, and verdicts cost nothing but time."""

Batch = list[tuple[int, Proposal | Unreadable]]
"""Positions and what landed there."""

Queue = asyncio.Queue[tuple[int, Proposal | Unreadable] | None]


class Run:
    """The work of one authoring in this process."""

    def __init__(
        self,
        repository: Repository,
        verifier: VerifierClient,
        request: AuthoringRequest,
        bundle: Bundle,
        teacher: Teacher,
    ) -> None:
        self._repository = repository
        self._verifier = verifier
        self._authoring_id = request.authoring_id
        self._opinions = request.second_opinions
        self._bundle = bundle
        self._teacher = teacher
        self._sandbox_id = f"author-{sha256_hex(request.authoring_id)[:16]}"
        self._stored: set[int] = set()
        self._wanted = 0
        self._began = time.monotonic()
        self._landed_before = 0

    @property
    def eta_seconds(self) -> float | None:
        """What is left at the pace of this run so far; None while nothing has landed in it."""
        landed = len(self._stored) - self._landed_before
        if landed <= 0:
            return None
        return max(0, self._wanted - len(self._stored)) * (time.monotonic() - self._began) / landed

    async def judge_all(self, assignment: Assignment) -> None:
        """Have every proposal judged that is not yet.

        Raises GroundsBroken, ServiceProblem, ServiceUnreachable, and TeacherError after all that landed is judged.
        """
        self._wanted = assignment.golds
        self._stored = await self._repository.positions(self._authoring_id)
        self._landed_before = len(self._stored)
        async with open_grounds(self._verifier, self._bundle, self._sandbox_id, assignment.catalogue) as grounds:
            await self._pipeline(assignment, grounds)

    async def _pipeline(self, assignment: Assignment, grounds: Grounds) -> None:
        """The teacher goes on while a batch is judged."""
        queue: Queue = asyncio.Queue(2 * BATCH_GOLDS)
        producing = asyncio.create_task(self._produce(assignment, queue))
        try:
            async for batch in _batches(queue):
                await self._judge(grounds, batch)
            await producing
        finally:
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)

    async def _produce(self, assignment: Assignment, queue: Queue) -> None:
        """What is new goes into the queue, then None; also where the teacher fails, so that what landed is judged."""
        count = 0
        try:
            async for landed in self._teacher.propose(assignment):
                position = count if landed.position is None else landed.position
                count += 1
                if position not in self._stored:
                    await queue.put((position, landed))
        finally:
            await queue.put(None)

    async def _judge(self, grounds: Grounds, batch: Batch) -> None:
        """Judge and store one batch."""
        proposals = [(position, landed) for position, landed in batch if isinstance(landed, Proposal)]
        judged = await judge(grounds, [proposal for _, proposal in proposals])
        if isinstance(self._teacher, Attempting) and self._opinions:
            judged = await second_opinions(grounds, self._teacher, self._opinions, judged)
        judged = [replace(entry, position=position) for entry, (position, _) in zip(judged, proposals, strict=True)]
        judged += [_lost(landed) for _, landed in batch if isinstance(landed, Unreadable)]
        await self._repository.add_proposals(self._authoring_id, judged)
        for entry in judged:
            self._stored.add(entry.position)
            for reason in entry.reasons:
                PROPOSALS.labels(self._teacher.name, reason or "passed").inc()


def _lost(item: Unreadable) -> Judged:
    """Counts as one question that was proposed."""
    proposal = Proposal("", item.archetype, False, (Phrasing("", ""),))
    return Judged(item.position, proposal, Reason.UNREADABLE)


async def _batches(queue: Queue) -> AsyncIterator[Batch]:
    """What waits in the queue, at least one and at most BATCH_GOLDS at a time, until None comes."""
    while True:
        batch: Batch = []
        item = await queue.get()
        while item is not None:
            batch.append(item)
            if queue.empty() or len(batch) == BATCH_GOLDS:
                break
            item = queue.get_nowait()
        if batch:
            yield batch
        if item is None:
            return
