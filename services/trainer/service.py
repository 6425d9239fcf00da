"""Decides what happens to runs: start, resume, stop, and what a job's death means."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from services.trainer import metrics
from services.trainer.guards.curves import Curves
from services.trainer.launching.launcher import JobState, Launcher, LauncherUnavailable
from services.trainer.repository import RunRepository, StoredRun
from shared.contracts.run_config import DataParallel, RunConfig
from shared.contracts.trainer import Run, RunEvent, RunRequest, RunState, Step
from shared.errors import Conflict, NotFound, Unavailable

log = logging.getLogger(__name__)

WATCH_SECONDS = 2.0
"""Between two looks at the jobs of active runs."""

SHOWN_SECONDS = 60.0
"""How long a run's last figures are exported after its end: Prometheus comes by every 15 or 30 s."""

MAY_CHANGE = {"guards": {}, "workers": 1, "data_parallel": DataParallel.DDP, "report_to": [], "restarts": 0}
"""Fields that another attempt of a run may set anew: they do not change what it learns."""

_ACTIVE = (RunState.PENDING, RunState.RUNNING)

_DIED = (JobState.FAILED, JobState.MISSING)
"""Ends of a job that nobody meant: another attempt may do better."""


class RunService:
    """Runs, and the jobs behind them."""

    def __init__(
        self,
        repository: RunRepository,
        launcher: Launcher,
        admit: Callable[[RunConfig], Awaitable[None]],
        curves: Curves,
    ) -> None:
        self._repository = repository
        self._curves = curves
        self._launcher = launcher
        self._admit = admit
        self._starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By run, as long as somebody starts it: between its row and its job, a second start would see it dead."""
        self._shown: set[str] = set()

    async def start(self, request: RunRequest) -> Run:
        """A new run, or the next attempt of an unfinished one whose job is gone; MAY_CHANGE may have.

        Raises Conflict for a known id with another config, Invalid as Admission, Unavailable without Ray.
        """
        starting = self._starting.setdefault(request.run_id, asyncio.Lock())
        async with starting:
            return await self._start(request)

    async def _start(self, request: RunRequest) -> Run:
        stored = await self._repository.find(request.run_id)
        if stored is not None:
            if not _same_run(stored.run.config, request.config):
                raise Conflict(_difference(request, stored.run))
            if stored.run.state is RunState.DONE or await self._is_at_work(stored.run):
                return stored.run
        await self._admit(request.config)
        if stored is None:
            mine = await self._repository.create(request.run_id, request.config)
        else:
            await self._end_job(stored.run)
            mine = await self._repository.next_attempt(request.run_id, stored.run.attempt, request.config)
        run = await self.find(request.run_id)
        if mine:
            await self._submit(run)
        elif not _same_run(run.config, request.config):
            raise Conflict(_difference(request, run))
        return run

    async def find(self, run_id: str) -> Run:
        """Raises NotFound."""
        return (await self._stored(run_id)).run

    async def steps(self, run_id: str, after: int) -> list[Step]:
        """Steps above `after`. Raises NotFound."""
        await self._stored(run_id)
        return await self._repository.steps(run_id, after)

    async def newest(self, limit: int) -> list[Run]:
        """The newest runs."""
        return await self._repository.newest(limit)

    async def events(self, run_id: str) -> list[RunEvent]:
        """What was told of it. Raises NotFound."""
        await self._stored(run_id)
        return await self._repository.events(run_id)

    async def log(self, run_id: str) -> str:
        """The end of its newest job's log, without secrets. Raises NotFound, Unavailable."""
        run = (await self._stored(run_id)).run
        try:
            return await self._launcher.log_tail(run_id, run.attempt)
        except LauncherUnavailable as error:
            raise Unavailable(f"{error}. The run and its steps are kept") from error

    async def resume(self, run_id: str) -> Run:
        """The next attempt of an unfinished run, as it was configured. Raises as `start`."""
        stored = await self._stored(run_id)
        return await self.start(RunRequest(run_id=run_id, config=stored.run.config))

    async def stop(self, run_id: str) -> Run:
        """End a run after the step in progress, or at once when it has not begun. Raises NotFound, Unavailable."""
        run = (await self._stored(run_id)).run
        if run.state in _ACTIVE:
            await self._repository.request_stop(run_id)
            if run.state is RunState.PENDING:
                await self._end_job(run)
                await self._repository.finish(run_id, run.attempt, RunState.STOPPED)
        return await self.find(run_id)

    async def watch(self) -> None:
        """Notice jobs that died, for as long as the service lives."""
        while True:
            try:
                active = await self._repository.active(SHOWN_SECONDS)
                self._forget_all_but({stored.run.run_id for stored in active})
                for stored in active:
                    await self._show(stored.run)
                    if stored.run.finished_at is None and stored.run.run_id not in self._starting:
                        await self._look_at(stored.run)
                await self._curves.read()
            except LauncherUnavailable as error:
                log.warning("%s; runs stay as they are until it answers", error)
            except Exception:  # e.g. the database restarts: the watch must outlive it
                log.exception("could not look at the jobs")
            await asyncio.sleep(WATCH_SECONDS)

    def _forget_all_but(self, active: set[str]) -> None:
        for run_id in self._shown - active:
            metrics.forget(run_id)
        self._shown &= active

    async def _show(self, run: Run) -> None:
        if newest := await self._repository.steps(run.run_id, run.steps_done - 1):
            metrics.show(run.run_id, newest[-1])
            self._shown.add(run.run_id)

    async def _look_at(self, run: Run) -> None:
        job = await self._launcher.state(run.run_id, run.attempt)
        if job is JobState.ALIVE:
            return
        stored = await self._repository.find(run.run_id)  # the job may have written its end since
        if stored is None or stored.run.state not in _ACTIVE or stored.run.attempt != run.attempt:
            return
        why = _death(job, stored.run)
        kept = f"Steps up to {stored.run.steps_done} and the newest checkpoint are kept"
        tail = await self._launcher.log_tail(run.run_id, run.attempt)
        end = f". Its log ends: {tail}" if tail else ""
        if stored.stop_requested:
            await self._repository.finish(run.run_id, run.attempt, RunState.STOPPED, f"{why}. {kept}{end}")
        elif job in _DIED and stored.restarts < stored.run.config.restarts:
            await self._restart(stored, f"{why}; attempt {run.attempt + 1} goes on from the newest checkpoint{end}")
        else:
            error = f"{why}. {kept}; start the run again to go on{end}"
            await self._repository.finish(run.run_id, run.attempt, RunState.FAILED, error)

    async def _restart(self, stored: StoredRun, message: str) -> None:
        """Begin the next attempt of a run whose job died. Where its submission fails, its job is missed next time."""
        run = stored.run
        async with self._starting.setdefault(run.run_id, asyncio.Lock()):
            await self._launcher.stop(run.run_id, run.attempt)  # what is left of it
            if await self._repository.restart(stored, message):
                log.warning("run %s: %s", run.run_id, message)
                metrics.RESTARTS.inc()
                await self._launcher.submit(run.run_id, run.attempt + 1)

    async def _is_at_work(self, run: Run) -> bool:
        if run.state not in _ACTIVE:
            return False
        try:
            return await self._launcher.state(run.run_id, run.attempt) is JobState.ALIVE
        except LauncherUnavailable as error:
            raise Unavailable(f"{error}. The run and its steps are kept") from error

    async def _submit(self, run: Run) -> None:
        try:
            await self._launcher.submit(run.run_id, run.attempt)
        except LauncherUnavailable as error:
            message = f"{error}. Nothing was started; start the run again once Ray is up"
            await self._repository.finish(run.run_id, run.attempt, RunState.FAILED, message)
            raise Unavailable(message) from error

    async def _end_job(self, run: Run) -> None:
        """Make sure that the run's present job has ended. Raises Unavailable."""
        try:
            await self._launcher.stop(run.run_id, run.attempt)
        except LauncherUnavailable as error:
            raise Unavailable(f"{error}. The run and its steps are kept") from error

    async def _stored(self, run_id: str) -> StoredRun:
        stored = await self._repository.find(run_id)
        if stored is None:
            raise NotFound(f"no run {run_id!r}")
        return stored


def _same_run(one: RunConfig, other: RunConfig) -> bool:
    """Whether two configs train alike: a run that a guard stopped, or a lost GPU, has to be able to go on."""
    return one.model_copy(update=MAY_CHANGE) == other.model_copy(update=MAY_CHANGE)


def _difference(request: RunRequest, run: Run) -> str:
    ours, theirs = run.config.model_dump(), request.config.model_dump()
    differing = [name for name in ours if ours[name] != theirs[name] and name not in MAY_CHANGE]
    fields = [f"{name}: {ours[name]!r} there, {theirs[name]!r} here" for name in differing]
    return f"run {run.run_id!r} has another config ({'; '.join(fields)}). It is unchanged; choose another run id"


def _death(job: JobState, run: Run) -> str:
    what = "Ray knows nothing of its job (was Ray restarted?)" if job is JobState.MISSING else f"its job {job}"
    return f"attempt {run.attempt} died: {run.error or what}"
