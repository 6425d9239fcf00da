"""Suites in the making: one at a time, each on a thread that ends when nobody reads its lines any more."""

import asyncio
import contextlib
import logging
import threading
import traceback
from collections.abc import AsyncIterator

from services.verifier.sandbox.protocol import BundleFaulty, SandboxFailed
from services.verifier.suites.measuring import Cancelled
from services.verifier.suites.service import SuiteMaker
from services.verifier.suites.study_process import StudyCrashed
from services.verifier.suites.workbench import WorkbenchFailed
from shared.contracts.base import Problem
from shared.contracts.suites import SuiteFailure, SuiteProgress, SuiteRequest, SuiteResult
from shared.domain import Bundle
from shared.errors import Invalid, ServiceError, TooMany, Unavailable

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
"""Between lines at most: the last one is sent again."""

Line = SuiteProgress | SuiteResult | SuiteFailure


class SuiteRun:
    """One suite in the making. For the event loop that starts it."""

    def __init__(self, maker: SuiteMaker, bundle: Bundle, request: SuiteRequest) -> None:
        self._stop = threading.Event()
        self._lines: asyncio.Queue[SuiteProgress | SuiteResult | ServiceError] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._make, args=(maker, bundle, request), name="suite-maker")
        self._thread.start()

    def _make(self, maker: SuiteMaker, bundle: Bundle, request: SuiteRequest) -> None:
        try:
            self._say(maker.make(bundle, request, self._say, self._stop))
        except Cancelled:
            log.info("a suite for %s was given up: nobody waits for it", bundle.name)
        except BundleFaulty as error:
            self._say(Invalid(f"bundle {bundle.name}: {error}. No variant was made"))
        except StudyCrashed:
            self._say(Invalid("the golds or the seed crash the SQL parser: no variant was made"))
        except (SandboxFailed, WorkbenchFailed) as error:
            self._say(Unavailable(f"{error}. No variant was made; try again"))
        except Exception as error:
            # Its message could quote a gold; where it happened cannot.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("a suite for %s failed with %s\n%s", bundle.name, type(error).__name__, where)
            self._say(ServiceError(f"{type(error).__name__}: see the verifier log. No variant was made"))

    def _say(self, line: SuiteProgress | SuiteResult | ServiceError) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    @property
    def alive(self) -> bool:
        """Whether it still works (or cleans up)."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Have it end after the statements in flight. Idempotent."""
        self._stop.set()

    def join(self) -> None:
        """Wait for its end. Blocking."""
        self._thread.join()

    async def first(self) -> SuiteProgress | SuiteResult:
        """The first line, said once the bundle is loaded. Raises a ServiceError."""
        line = await self._lines.get()
        if isinstance(line, ServiceError):
            raise line
        return line

    async def lines(self, first: SuiteProgress | SuiteResult) -> AsyncIterator[str]:
        """JSON lines up to the result or a failure. Whoever stops reading stops the suite."""
        try:
            line: Line = first
            yield _json(line)
            while isinstance(line, SuiteProgress):
                with contextlib.suppress(TimeoutError):
                    found = await asyncio.wait_for(self._lines.get(), HEARTBEAT_SECONDS)
                    line = _failure(found) if isinstance(found, ServiceError) else found
                yield _json(line)
        finally:
            self.stop()


def _failure(error: ServiceError) -> SuiteFailure:
    return SuiteFailure(problem=Problem(title=error.title, status=error.status, detail=error.detail))


def _json(line: Line) -> str:
    return line.model_dump_json() + "\n"


class SuiteRuns:
    """At most one suite is made at a time: it keeps the cores busy for minutes."""

    def __init__(self, maker: SuiteMaker) -> None:
        self._maker = maker
        self._run: SuiteRun | None = None

    def start(self, bundle: Bundle, request: SuiteRequest) -> SuiteRun:
        """Raises TooMany."""
        if self._run is not None and self._run.alive:
            raise TooMany("a suite is being made already: wait for its end, or end the command that asked for it")
        self._run = SuiteRun(self._maker, bundle, request)
        return self._run

    def stop(self) -> None:
        """End the suite in the making. Blocking."""
        if self._run is not None:
            self._run.stop()
            self._run.join()
