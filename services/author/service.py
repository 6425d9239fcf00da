"""Decides: starts, resumes and finishes authorings; answers with task sets.

One process holds the author's schema: an authoring found running at start was left by a process that is gone.
"""

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.author.assembly import Origin, assemble
from services.author.catalogue import read_catalogue
from services.author.judging import VerifierBroken, judge
from services.author.repository import Repository, StoredAuthoring
from services.author.teachers.base import Assignment, Proposal, Teacher
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.verifier import VerifierClient
from shared.contracts.author import Authoring, AuthoringRequest, AuthoringState
from shared.contracts.base import FieldError
from shared.contracts.tasks import PrivilegedTask, Split, Task, TaskSet
from shared.contracts.verifier import SandboxRequest
from shared.domain import Bundle, BundleError, find_bundle
from shared.errors import Conflict, Invalid, NotFound
from shared.ids import sha256_hex

log = logging.getLogger(__name__)

BATCH_GOLDS = 160
"""Golds judged and stored together: a kill loses at most so many, and a teacher that takes turns fills it evenly."""

RESUME = "post the same authoring again to continue"


class Author:
    """Authorings of this process and the task sets of all."""

    def __init__(
        self,
        repository: Repository,
        verifier: VerifierClient,
        domains: Sequence[Path],
        teachers: Mapping[str, Teacher],
    ) -> None:
        self._repository = repository
        self._verifier = verifier
        self._domains = domains
        self._teachers = teachers
        self._starting = asyncio.Lock()
        self._running: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Say of what a former process left running that it stopped."""
        await self._repository.fail_running(f"interrupted by a restart; what landed is kept: {RESUME}")

    async def close(self) -> None:
        """Stop the background work; what has landed stays."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def start(self, request: AuthoringRequest) -> Authoring:
        """Start it, or resume it where it stopped. Raises NotFound, Invalid, Conflict."""
        if request.teacher not in self._teachers:
            message = f"no teacher {request.teacher!r}; there are {sorted(self._teachers)}"
            fault = FieldError(field="teacher", message=message)
            raise Invalid(f"`teacher`: {message}. Nothing was done.", [fault])
        bundle = self._bundle(request.domain)
        async with self._starting:
            created = await self._repository.create(request, bundle.digest)
            stored = await self._stored(request.authoring_id)
            if not created:
                _check_same(request, stored, bundle)
            if stored.view.state is not AuthoringState.DONE and request.authoring_id not in self._running:
                await self._repository.set_state(request.authoring_id, AuthoringState.RUNNING)
                task = asyncio.create_task(self._run(request, bundle))
                self._running[request.authoring_id] = task
                task.add_done_callback(lambda _: self._running.pop(request.authoring_id, None))
        return await self.authoring(request.authoring_id)

    async def authoring(self, authoring_id: str) -> Authoring:
        """How it stands. Raises NotFound."""
        return (await self._stored(authoring_id)).view

    async def tasks(self, domain: str, split: Split | None, privileged: bool) -> TaskSet:
        """The tasks of the domain's newest finished authoring. Raises NotFound."""
        current = await self._repository.current_set(domain)
        if current is None:
            raise NotFound(f"no finished authoring of domain {domain!r}: start one with `POST /v1/authorings`")
        found: list[PrivilegedTask | Task] = []
        if privileged:
            found.extend(await self._repository.privileged_tasks(current.authoring_id, split))
        else:
            found.extend(await self._repository.tasks(current.authoring_id, split))
        return TaskSet(domain=domain, digest=current.digest, tasks=found)

    def _bundle(self, domain: str) -> Bundle:
        try:
            return find_bundle(domain, self._domains)
        except BundleError as error:
            raise NotFound(str(error)) from error

    async def _stored(self, authoring_id: str) -> StoredAuthoring:
        stored = await self._repository.authoring(authoring_id)
        if stored is None:
            raise NotFound(f"no authoring {authoring_id!r}")
        return stored

    async def _run(self, request: AuthoringRequest, bundle: Bundle) -> None:
        """The background work. What fails is stored with the authoring; a cancelled one stays `running`."""
        sandbox_id = f"author-{sha256_hex(request.authoring_id)[:16]}"
        try:
            try:
                await self._judge_all(request, bundle, sandbox_id)
                judged = await self._repository.proposals(request.authoring_id)
                assembled = await asyncio.to_thread(assemble, judged, _origin(request, bundle))
                await self._repository.finish(request.authoring_id, assembled)
                log.info("authoring done", extra={"fields": {"authoring": request.authoring_id}})
            finally:
                with contextlib.suppress(ServiceProblem, ServiceUnreachable):
                    await self._verifier.delete_sandbox(sandbox_id)
        except (ServiceProblem, ServiceUnreachable, VerifierBroken) as error:
            await self._fail(request.authoring_id, str(error))
        except Exception as error:
            # the places only: a message of pydantic or psycopg may quote a gold
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("authoring %s broke: %s\n%s", request.authoring_id, type(error).__name__, places)
            await self._fail(request.authoring_id, f"{type(error).__name__}, see the author's log")

    async def _fail(self, authoring_id: str, cause: str) -> None:
        await self._repository.set_state(authoring_id, AuthoringState.FAILED, f"{cause}. What landed is kept: {RESUME}")

    async def _judge_all(self, request: AuthoringRequest, bundle: Bundle, sandbox_id: str) -> None:
        """Have every proposal that is not stored yet judged, batch by batch."""
        sandbox = await self._verifier.create_sandbox(
            SandboxRequest(sandbox_id=sandbox_id, run_id=sandbox_id, domain=request.domain)
        )
        if sandbox.digest != bundle.digest:
            raise VerifierBroken(f"the verifier has another version of {request.domain!r}: point both at one folder")
        catalogue = await asyncio.to_thread(read_catalogue, bundle.schema_sql, bundle.seed_sql)
        assignment = Assignment(catalogue, request.seed, request.golds, request.phrasings)
        landed = len(await self._repository.proposals(request.authoring_id))
        position, batch = 0, list[Proposal]()
        async for proposal in self._teachers[request.teacher].propose(assignment):
            position += 1
            if position <= landed:
                continue
            batch.append(proposal)
            if len(batch) == BATCH_GOLDS:
                await self._judge_batch(request.authoring_id, sandbox_id, position - len(batch), batch)
                batch = []
        if batch:
            await self._judge_batch(request.authoring_id, sandbox_id, position - len(batch), batch)

    async def _judge_batch(self, authoring_id: str, sandbox_id: str, first: int, batch: Sequence[Proposal]) -> None:
        judged = await judge(self._verifier, sandbox_id, first, batch)
        await self._repository.add_proposals(authoring_id, judged)


def _origin(request: AuthoringRequest, bundle: Bundle) -> Origin:
    return Origin(request.teacher, request.authoring_id, request.domain, bundle.digest)


def _check_same(request: AuthoringRequest, stored: StoredAuthoring, bundle: Bundle) -> None:
    """Raises Conflict when the id names another authoring."""
    if request != stored.request:
        names = [name for name in type(request).model_fields if getattr(request, name) != getattr(stored.request, name)]
        raise Conflict(f"authoring {request.authoring_id!r} exists with other {names}. Nothing was done: use a new id")
    if bundle.digest != stored.view.domain_digest:
        raise Conflict(f"domain {request.domain!r} has changed since {request.authoring_id!r} began: use a new id")
