"""Decides: starts, resumes, cancels and finishes authorings; answers with task sets.

Several authors may share one control database: an authoring is run by the one that holds its `Ownership`.
"""

import asyncio
import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from services.author.advice import shares
from services.author.catalogue import catalogue_of
from services.author.grounds import GroundsBroken
from services.author.importing import ImportTeacher, authoring_of
from services.author.ledger import StoredLedger
from services.author.ownership import OwnedElsewhere, Ownership
from services.author.publishing import Publisher
from services.author.repository import Repository, StoredAuthoring
from services.author.review_repository import ReviewRepository
from services.author.run import Run
from services.author.teachers import Teachers
from services.author.teachers.base import Assignment, OverBudget, TeacherError
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.rollout import RolloutClient
from shared.clients.verifier import VerifierClient
from shared.contracts.author import LIMITS, Authoring, AuthoringRequest, AuthoringState
from shared.contracts.base import FieldError
from shared.contracts.measuring import Report
from shared.contracts.tasks import ImportRequest, PrivilegedTask, Split, Task, TaskSet
from shared.domain import Bundle, BundleError, find_bundle
from shared.errors import Conflict, Invalid, NotFound

log = logging.getLogger(__name__)

RESUME = "post the same authoring again to continue"

PATIENCE_SECONDS = 2.0
"""How long a post waits for an authoring whose author may have just been killed."""

SWEEP_SECONDS = 5.0
"""Between looks for authorings whose author is gone."""

LOOK_SECONDS = 2.0
"""How often a run looks whether another author was told to cancel it."""


@dataclass(frozen=True)
class Peers:
    """What the author calls."""

    verifier: VerifierClient
    rollout: RolloutClient | None
    """None where no rollout service was named."""


class Author:
    """Authorings of this process and the task sets of all."""

    def __init__(
        self,
        repository: Repository,
        reviews: ReviewRepository,
        dsn: str,
        peers: Peers,
        domains: Sequence[Path],
        teachers: Teachers,
    ) -> None:
        self._repository = repository
        self._publisher = Publisher(repository, reviews)
        self._dsn = dsn
        self._peers = peers
        self._domains = domains
        self._teachers = teachers
        self._starting = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, Run] = {}

    async def open(self) -> None:
        """Look after what dead authors left, now and from now on."""
        await self._sweep()
        self._sweeping = asyncio.create_task(self._sweep_on())

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self._sweep()
            except psycopg.OperationalError:
                log.warning("the control database does not answer; authorings of dead authors are looked for again")

    async def _sweep(self) -> None:
        """Say of what no living author runs any more that it stopped."""
        for authoring_id in await self._repository.running():
            if authoring_id in self._tasks or self._starting.locked():
                continue
            try:
                owner = await Ownership.take(self._dsn, authoring_id)
            except OwnedElsewhere:
                continue
            if await self._repository.state(authoring_id) is AuthoringState.RUNNING:  # not ended in the meantime
                await self._fail(authoring_id, "interrupted: its author was stopped or killed")
            await owner.release()

    async def close(self) -> None:
        """Stop the background work; what has landed stays."""
        running = [self._sweeping, *self._tasks.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._teachers.close()

    async def start(self, request: AuthoringRequest) -> Authoring:
        """Start it, or resume it where it stopped. Raises NotFound, Invalid, Conflict."""
        return await self._start(self._teachers.resolve(request))

    async def start_import(self, request: ImportRequest) -> Authoring:
        """The same for tasks from elsewhere. Raises NotFound, Invalid, Conflict."""
        return await self._start(authoring_of(request), ImportTeacher(request.tasks))

    async def _start(self, request: AuthoringRequest, source: ImportTeacher | None = None) -> Authoring:
        bundle = self._bundle(request.domain)
        async with self._starting:
            stored = await self._repository.authoring(request.authoring_id)
            if stored is None:
                weights = shares(request.only, await self._report(request))
                await self._repository.create(request, bundle.digest, weights, await self._extended(request))
                stored = await self._stored(request.authoring_id)
            _check_same(request, stored, bundle)
            if stored.view.state is not AuthoringState.DONE and request.authoring_id not in self._tasks:
                await self._take_up(request, stored, bundle, source)
        return await self.authoring(request.authoring_id)

    async def authoring(self, authoring_id: str) -> Authoring:
        """How it stands. Raises NotFound."""
        view = (await self._stored(authoring_id)).view
        run = self._runs.get(authoring_id)
        return view if run is None else view.model_copy(update={"eta_seconds": run.eta_seconds})

    async def cancel(self, authoring_id: str) -> Authoring:
        """Stop it, wherever it runs; what landed stays. A finished one stays as it is. Raises NotFound."""
        stored = await self._stored(authoring_id)
        if stored.view.state is not AuthoringState.DONE:
            await self._repository.set_state(
                authoring_id, AuthoringState.CANCELLED, f"cancelled. What landed is kept: {RESUME}"
            )
            if task := self._tasks.get(authoring_id):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        return await self.authoring(authoring_id)

    async def tasks(self, domain: str, split: Split | None, privileged: bool) -> TaskSet:
        """The tasks of the domain's newest published authoring. Raises NotFound."""
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

    async def _report(self, request: AuthoringRequest) -> Report | None:
        """The report to aim by. Raises Invalid."""
        if request.from_report is None:
            return None
        if self._peers.rollout is None:
            raise _invalid("from_report", "this author knows no rollout service: set SQLCLIMB_ROLLOUT_URL for it")
        try:
            return await self._peers.rollout.report(request.from_report)
        except (ServiceProblem, ServiceUnreachable) as error:
            raise _invalid("from_report", f"no report of {request.from_report!r}: {error}") from error

    async def _extended(self, request: AuthoringRequest) -> str | None:
        """The authoring whose tasks are added to."""
        if not request.add:
            return None
        current = await self._repository.current_set(request.domain)
        return None if current is None else current.authoring_id

    async def _take_up(
        self, request: AuthoringRequest, stored: StoredAuthoring, bundle: Bundle, source: ImportTeacher | None
    ) -> None:
        """Run it here, unless another author does."""
        try:
            owner = await Ownership.take(self._dsn, request.authoring_id, PATIENCE_SECONDS)
        except OwnedElsewhere:
            return
        await self._repository.set_request(request)
        await self._repository.set_state(request.authoring_id, AuthoringState.RUNNING)
        task = asyncio.create_task(self._run(request, stored, bundle, owner, source))
        self._tasks[request.authoring_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(request.authoring_id, None))

    async def _run(
        self,
        request: AuthoringRequest,
        stored: StoredAuthoring,
        bundle: Bundle,
        owner: Ownership,
        source: ImportTeacher | None,
    ) -> None:
        """The background work. What fails is stored with the authoring; a cancelled one stays as it is."""
        looking = asyncio.create_task(self._look(request.authoring_id, asyncio.current_task()))
        try:
            await self._work(request, stored, bundle, owner, source)
        except (ServiceProblem, ServiceUnreachable, GroundsBroken, TeacherError, OwnedElsewhere) as error:
            await self._fail(request.authoring_id, str(error))
        except psycopg.OperationalError as error:
            log.error("authoring %s lost the control database: %s", request.authoring_id, type(error).__name__)
            await self._fail(request.authoring_id, "the control database did not answer")
        except Exception as error:
            # the places only: a message of pydantic or psycopg may quote a gold
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("authoring %s broke: %s\n%s", request.authoring_id, type(error).__name__, places)
            await self._fail(request.authoring_id, f"{type(error).__name__}, see the author's log")
        finally:
            looking.cancel()
            self._runs.pop(request.authoring_id, None)
            await owner.release()

    async def _work(
        self,
        request: AuthoringRequest,
        stored: StoredAuthoring,
        bundle: Bundle,
        owner: Ownership,
        source: ImportTeacher | None,
    ) -> None:
        ledger = StoredLedger(owner, request.authoring_id)
        spent_usd = await ledger.spent_usd()
        opened = await asyncio.to_thread(self._teachers.open, request, bundle, ledger, spent_usd)
        teacher = source or opened
        run = Run(self._repository, self._peers.verifier, request, bundle, teacher)
        self._runs[request.authoring_id] = run
        catalogue = await asyncio.to_thread(catalogue_of, bundle)
        assignment = Assignment(
            catalogue, request.seed, request.golds, request.phrasings, tuple(request.styles), stored.weights
        )
        state, words = AuthoringState.DONE, ""
        try:
            await run.judge_all(assignment)
        except OverBudget as error:
            state, words = AuthoringState.STOPPED, f"{error}. What landed is kept: post it again with more to continue"
        await self._publisher.publish(stored, state, words)
        log.info("authoring ended", extra={"fields": {"authoring": request.authoring_id, "state": str(state)}})

    async def _look(self, authoring_id: str, task: "asyncio.Task[None] | None") -> None:
        """Cancel the run once another author has been told to."""
        while task is not None:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if await self._repository.state(authoring_id) is not AuthoringState.RUNNING:
                    task.cancel()
                    return
            except psycopg.OperationalError:
                continue  # the run finds out by itself

    async def _fail(self, authoring_id: str, cause: str) -> None:
        await self._repository.set_state(authoring_id, AuthoringState.FAILED, f"{cause}. What landed is kept: {RESUME}")


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(f"`{field}`: {message}. Nothing was done.", [FieldError(field=field, message=message)])


def _check_same(request: AuthoringRequest, stored: StoredAuthoring, bundle: Bundle) -> None:
    """Raises Conflict when the id names another authoring."""
    names = [
        name
        for name in type(request).model_fields
        if name not in LIMITS and getattr(request, name) != getattr(stored.request, name)
    ]
    if names:
        raise Conflict(f"authoring {request.authoring_id!r} exists with other {names}. Nothing was done: use a new id")
    if bundle.digest != stored.view.domain_digest:
        raise Conflict(f"domain {request.domain!r} has changed since {request.authoring_id!r} began: use a new id")
