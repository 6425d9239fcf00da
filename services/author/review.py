"""People beside the gates: what waits for a decision, and decisions. Their effect: `decisions`; their store:
`review_repository`."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from services.author.assembly import Rejection
from services.author.decisions import ACCEPTED
from services.author.gates import ACCEPTABLE, MEANING, Reason
from services.author.grounds import Grounds, GroundsBroken, open_grounds
from services.author.judged import Judged
from services.author.judging import judge
from services.author.publishing import Publisher
from services.author.repository import Repository, StoredAuthoring
from services.author.review_repository import ReviewRepository
from services.author.teachers.base import Phrasing, Proposal
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.verifier import VerifierClient
from shared.contracts.author import AuthoringState
from shared.contracts.review import (
    Action,
    Decision,
    DecisionResult,
    DecisionsRequest,
    DecisionsResponse,
    ReviewItem,
    ReviewQueue,
    StoredDecision,
)
from shared.contracts.tasks import RejectedTask, RejectedTasks
from shared.contracts.verifier import ResultPreview
from shared.domain import Bundle, BundleError, find_bundle
from shared.errors import NotFound, Unavailable
from shared.ids import task_id

Question = tuple[Judged, Phrasing, Reason | None]
"""A question with its proposal and why it is no task."""


class Review:
    """Decisions on the tasks of all domains.

    Calls raise NotFound where a domain has no published authoring, Unavailable where the verifier does not answer.
    """

    def __init__(
        self, repository: Repository, reviews: ReviewRepository, verifier: VerifierClient, domains: Sequence[Path]
    ) -> None:
        self._repository = repository
        self._reviews = reviews
        self._publisher = Publisher(repository, reviews)
        self._verifier = verifier
        self._domains = domains
        self._deciding = asyncio.Lock()

    async def rejections(self, authoring_id: str) -> RejectedTasks:
        """Every question of an authoring that is no task, and why."""
        stored = await self._repository.authoring(authoring_id)
        if stored is None:
            raise NotFound(f"no authoring {authoring_id!r}")
        assembled = await self._publisher.assembled(stored)
        return RejectedTasks(authoring_id=authoring_id, rejected=[_rejected(one) for one in assembled.rejections])

    async def queue(self, domain: str, reason: Reason | None, task: str | None, limit: int) -> ReviewQueue:
        """What to look at: undecided questions that a person may overrule, or those of one reason, or one task."""
        stored = await self.current(domain)
        questions = list(_questions(await self._publisher.judged(stored)))
        decisions = await self._reviews.stored(domain)
        waiting = [one for one in questions if one[2] in ACCEPTABLE and task_id(one[1].question) not in decisions]
        if task is not None:
            wanted = [one for one in questions if task_id(one[1].question) == task][:1]
        elif reason is None or reason in ACCEPTABLE:
            wanted = [one for one in waiting if reason in (None, one[2])]
        else:
            rejections = (await self._publisher.assembled(stored)).rejections
            wanted = [(one.entry, one.phrasing, one.reason) for one in rejections if one.reason is reason]
        items = [_item(one, decisions) for one in wanted[:limit]]
        return ReviewQueue(
            domain=domain,
            authoring_id=stored.view.authoring_id,
            waiting=len(waiting),
            items=await self._with_rows(domain, items),
        )

    async def decide(self, domain: str, request: DecisionsRequest) -> DecisionsResponse:
        """Store the decisions that hold, one by one; then make the set anew where asked."""
        async with self._deciding:
            stored = await self.current(domain)
            questions = {task_id(one[1].question): one for one in _questions(await self._publisher.judged(stored))}
            unknown = [one.task_id for one in request.decisions if one.task_id not in questions]
            if unknown:
                raise NotFound(f"no question {unknown[0]!r} was proposed for domain {domain!r}. Nothing was stored")
            results = [await self._decide(domain, one, questions[one.task_id]) for one in request.decisions]
            if (
                request.publish and stored.view.state is not AuthoringState.RUNNING
            ):  # one that runs publishes at its end
                await self._publisher.publish(stored, stored.view.state, stored.view.error)
            current = await self.current(domain)
        return DecisionsResponse(results=results, task_set_digest=current.view.task_set_digest, tasks=current.view.kept)

    async def current(self, domain: str) -> StoredAuthoring:
        """The authoring that holds a domain's current tasks."""
        current = await self._repository.current_set(domain)
        stored = None if current is None else await self._repository.authoring(current.authoring_id)
        if stored is None:
            raise NotFound(f"no finished authoring of domain {domain!r}: start one with `POST /v1/authorings`")
        return stored

    def bundle(self, domain: str) -> Bundle:
        """The domain's bundle as it is now."""
        try:
            return find_bundle(domain, self._domains)
        except BundleError as error:
            raise NotFound(str(error)) from error

    @contextlib.asynccontextmanager
    async def grounds(self, domain: str) -> AsyncIterator[Grounds]:
        """Sandboxes of the bundle as it is now, for one call. What the verifier refuses becomes Unavailable."""
        try:
            async with open_grounds(self._verifier, self.bundle(domain), f"author-{uuid.uuid4().hex[:12]}") as grounds:
                yield grounds
        except (ServiceProblem, ServiceUnreachable, GroundsBroken) as error:
            raise Unavailable(f"{error}. Nothing was changed; the same call may be made again") from error

    async def _decide(self, domain: str, decision: Decision, question: Question) -> DecisionResult:
        _, phrasing, reason = question
        edited: Judged | None = None
        if decision.action is Action.EDIT:
            edited = await self._judge_edit(domain, decision, question)
            reason = edited.reasons[0]
            if decision.force and reason in ACCEPTABLE:
                edited = replace(edited, phrasing_reasons=(), edits=(*edited.edits, ACCEPTED))
                reason = None
        elif decision.action is Action.REJECT or reason in ACCEPTABLE:
            reason = None
        if reason is None:
            await self._reviews.add(domain, decision, phrasing.question, edited)
        return DecisionResult(
            task_id=decision.task_id,
            stored=reason is None,
            reason=reason,
            meaning="" if reason is None else MEANING[reason],
        )

    async def _judge_edit(self, domain: str, decision: Decision, question: Question) -> Judged:
        entry, phrasing, _ = question
        async with self.grounds(domain) as grounds:
            [verdict] = await judge(grounds, [_edited(entry.proposal, phrasing, decision)])
        return verdict

    async def _with_rows(self, domain: str, items: Sequence[ReviewItem]) -> list[ReviewItem]:
        if not items:
            return []
        async with self.grounds(domain) as grounds:
            found: list[ResultPreview] = [await grounds.preview(item.golds[0]) for item in items]
        return [item.model_copy(update={"rows": rows}) for item, rows in zip(items, found, strict=True)]


def _questions(judged: Sequence[Judged]) -> Iterator[Question]:
    for entry in judged:
        for phrasing, reason in zip(entry.proposal.phrasings, entry.reasons, strict=True):
            yield entry, phrasing, reason


def _item(question: Question, decisions: dict[str, StoredDecision]) -> ReviewItem:
    entry, phrasing, reason = question
    name = task_id(phrasing.question)
    return ReviewItem(
        task_id=name,
        question=phrasing.question,
        golds=[entry.proposal.gold, *entry.proposal.alternatives],
        columns=list(entry.proposal.columns),
        order_matters=entry.proposal.order_matters,
        reason=reason,
        meaning="" if reason is None else MEANING[reason],
        acceptable=reason in ACCEPTABLE,
        decision=decisions.get(name),
        rows=None,
    )


def _edited(proposal: Proposal, phrasing: Phrasing, decision: Decision) -> Proposal:
    gold, *others = decision.golds or [proposal.gold, *proposal.alternatives]
    question = phrasing.question if decision.question is None else decision.question
    return replace(
        proposal, gold=gold, alternatives=tuple(others), phrasings=(Phrasing(phrasing.style, question),), position=None
    )


def _rejected(rejection: Rejection) -> RejectedTask:
    return RejectedTask(
        position=rejection.entry.position,
        task_id=task_id(rejection.phrasing.question),
        question=rejection.phrasing.question,
        reason=rejection.reason,
        meaning=MEANING[rejection.reason],
    )
