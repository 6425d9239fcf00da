"""Client of the author."""

from shared.clients.base import ServiceClient
from shared.contracts.author import Authoring, AuthoringRequest
from shared.contracts.tasks import Split, TaskSet


class AuthorClient(ServiceClient):
    """Authorings and tasks."""

    service = "author"

    async def start(self, request: AuthoringRequest) -> Authoring:
        """Start or resume an authoring. Needs the `author` scope."""
        return await self.call("POST", "/v1/authorings", Authoring, request)

    async def authoring(self, authoring_id: str) -> Authoring:
        """How it stands."""
        return await self.call("GET", f"/v1/authorings/{authoring_id}", Authoring)

    async def tasks(self, domain: str, split: Split | None = None, privileged: bool = False) -> TaskSet:
        """The current tasks of a domain; with golds only where the token has the `gold` scope."""
        params = {"split": split, "privileged": privileged}
        present = {name: str(value).lower() for name, value in params.items() if value is not None}
        return await self.call("GET", f"/v1/domains/{domain}/tasks", TaskSet, params=present)
