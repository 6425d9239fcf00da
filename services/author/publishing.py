"""Makes the task set of an authoring: what landed, what it adds to, and what people decided."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from services.author.advice import advised
from services.author.assembly import Assembled, Origin, assemble
from services.author.decisions import decided
from services.author.growth import carried, with_origins
from services.author.judged import Judged
from services.author.repository import Repository, StoredAuthoring
from services.author.review_repository import ReviewRepository
from services.author.teachers.grammar import NEEDS, GrammarTeacher
from shared.contracts.author import AuthoringState
from shared.contracts.tasks import Archetype, PrivilegedTask


class Publisher:
    """Task sets, made anew from what is stored."""

    def __init__(self, repository: Repository, reviews: ReviewRepository) -> None:
        self._repository = repository
        self._reviews = reviews

    async def judged(self, stored: StoredAuthoring) -> list[Judged]:
        """What the gates said of it and of what it adds to; decisions are not laid over it."""
        return await self._judged(stored, await self._former(stored))

    async def assembled(self, stored: StoredAuthoring) -> Assembled:
        """The set as it would be published now."""
        request, view = stored.request, stored.view
        former = await self._former(stored)
        judged = decided(await self._judged(stored, former), await self._reviews.decided(view.domain))
        origin = Origin(request.teacher, view.authoring_id, view.domain, view.domain_digest)
        assembled = with_origins(await asyncio.to_thread(assemble, judged, origin), former)
        result = assembled.result
        if request.teacher == GrammarTeacher.name:
            asked = request.only or list(Archetype)
            absent = {str(kind): NEEDS[kind] for kind in asked if kind not in result.matrix}
            result = result.model_copy(update={"absent": absent})
        return replace(assembled, result=advised(result))

    async def publish(self, stored: StoredAuthoring, state: AuthoringState, words: str) -> None:
        """Make it the domain's current set; one that stopped before it had any task only changes its state."""
        assembled = await self.assembled(stored)
        if not assembled.tasks and state is AuthoringState.STOPPED:
            await self._repository.set_state(stored.view.authoring_id, state, words)
            return
        await self._repository.finish(stored.view.authoring_id, assembled, state, words)

    async def _former(self, stored: StoredAuthoring) -> list[PrivilegedTask]:
        """The tasks that it adds to."""
        return [] if stored.extends is None else await self._repository.privileged_tasks(stored.extends, None)

    async def _judged(self, stored: StoredAuthoring, former: Sequence[PrivilegedTask]) -> list[Judged]:
        results = {} if stored.extends is None else await self._repository.task_results(stored.extends)
        return [*carried(former, results), *await self._repository.proposals(stored.view.authoring_id)]
