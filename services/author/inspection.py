"""The current tasks of a domain put to the proof: after a change of its bundle, and against a strong policy."""

from services.author.audit import groups_of, suspects
from services.author.checking import broken_tasks
from services.author.repository import Repository
from services.author.review import Review
from shared.contracts.review import Audit, AuditRequest, TaskCheck


class Inspection:
    """Calls raise NotFound and Unavailable, as those of `Review`."""

    def __init__(self, repository: Repository, review: Review) -> None:
        self._repository = repository
        self._review = review

    async def check(self, domain: str) -> TaskCheck:
        """The current tasks before the gates again, on the bundle as it is now."""
        stored = await self._review.current(domain)
        tasks = await self._repository.privileged_tasks(stored.view.authoring_id, None)
        async with self._review.grounds(domain) as grounds:
            broken = await broken_tasks(grounds, tasks)
        return TaskCheck(
            domain=domain,
            authored_digest=stored.view.domain_digest,
            current_digest=self._review.bundle(domain).digest,
            tasks=len(tasks),
            broken=broken,
        )

    async def audit(self, domain: str, request: AuditRequest) -> Audit:
        """The tasks on which the samples agree with each other and not with the gold."""
        stored = await self._review.current(domain)
        tasks = await self._repository.privileged_tasks(stored.view.authoring_id, None)
        groups = groups_of(request, {task.id: task for task in tasks})
        async with self._review.grounds(domain) as grounds:
            found = await suspects(grounds, groups, request.agreement)
        return Audit(
            domain=domain, audited=len(groups), suspects=found, share=len(found) / len(groups) if groups else 0.0
        )
