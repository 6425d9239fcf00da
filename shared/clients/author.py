"""Client of the author."""

from shared.clients.base import ServiceClient
from shared.contracts.author import Authoring, AuthoringRequest
from shared.contracts.review import Audit, AuditRequest, DecisionsRequest, DecisionsResponse, ReviewQueue, TaskCheck
from shared.contracts.tasks import ImportRequest, RejectedTasks, Split, TaskSet


class AuthorClient(ServiceClient):
    """Authorings and tasks."""

    service = "author"

    async def start(self, request: AuthoringRequest) -> Authoring:
        """Start or resume an authoring. Needs the `author` scope."""
        return await self.call("POST", "/v1/authorings", Authoring, request)

    async def authoring(self, authoring_id: str) -> Authoring:
        """How it stands."""
        return await self.call("GET", f"/v1/authorings/{authoring_id}", Authoring)

    async def cancel(self, authoring_id: str) -> Authoring:
        """Stop it; what landed stays."""
        return await self.call("DELETE", f"/v1/authorings/{authoring_id}", Authoring)

    async def tasks(self, domain: str, split: Split | None = None, privileged: bool = False) -> TaskSet:
        """The current tasks of a domain; with golds only where the token has the `gold` scope."""
        params = {"split": split, "privileged": privileged}
        present = {name: str(value).lower() for name, value in params.items() if value is not None}
        return await self.call("GET", f"/v1/domains/{domain}/tasks", TaskSet, params=present)

    async def start_import(self, request: ImportRequest) -> Authoring:
        """Start or resume an import. Needs the `author` and `gold` scopes."""
        return await self.call("POST", "/v1/imports", Authoring, request)

    async def rejections(self, authoring_id: str) -> RejectedTasks:
        """Every question of an authoring that is no task, and why."""
        return await self.call("GET", f"/v1/authorings/{authoring_id}/rejections", RejectedTasks)

    async def review(
        self, domain: str, reason: str | None = None, task: str | None = None, limit: int = 20
    ) -> ReviewQueue:
        """What waits for a person. Needs the `gold` scope."""
        params = {"reason": reason, "task": task, "limit": limit}
        present = {name: value for name, value in params.items() if value is not None}
        return await self.call("GET", f"/v1/domains/{domain}/review", ReviewQueue, params=present)

    async def decide(self, domain: str, request: DecisionsRequest) -> DecisionsResponse:
        """Accept, reject, edit. Needs the `gold` scope."""
        return await self.call("POST", f"/v1/domains/{domain}/decisions", DecisionsResponse, request)

    async def check(self, domain: str) -> TaskCheck:
        """Which current tasks the bundle no longer bears."""
        return await self.call("POST", f"/v1/domains/{domain}/tasks/check", TaskCheck)

    async def audit(self, domain: str, request: AuditRequest) -> Audit:
        """Suspect golds. Needs the `gold` scope."""
        return await self.call("POST", f"/v1/domains/{domain}/audits", Audit, request)
