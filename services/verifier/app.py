"""The verifier's app: opens the sandbox driver and the parser, tends sandboxes, closes everything."""

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI

from services.verifier.endpoints import router, verify_router
from services.verifier.execution import Limits
from services.verifier.parser import Parser
from services.verifier.resources import Backlog, Resources
from services.verifier.sandbox.protocol import SandboxDriver
from services.verifier.sandboxes import Sandboxes
from services.verifier.service import Verifier
from services.verifier.settings import VerifierSettings
from services.verifier.suites.endpoints import router as suite_router
from services.verifier.suites.runs import SuiteRuns
from services.verifier.suites.service import SuiteMaker
from shared.auth import TokenFile
from shared.web import create_app as create_service_app

PARSER_PROCESSES = max(2, min(8, os.cpu_count() or 1))
"""Reading a reply and parsing its statement take about 0.2 ms; two keep a long text from blocking the next batch."""

REQUESTS_AT_ONCE = 64
"""Request threads. Which of them work is the slots' matter (see `lanes`); the others cost little."""

GC_THRESHOLD = 20_000
"""Objects made and not freed before the collector looks at them."""

TEND_SECONDS = 0.5
"""How often overdue statements and unused sandboxes are looked for."""


def create_app(settings: VerifierSettings, driver: SandboxDriver) -> FastAPI:
    """The app on an opened driver; the app closes it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sandboxes = Sandboxes(driver, settings.sandbox_limit, settings.sandbox_ttl_seconds)
        parser = Parser(PARSER_PROCESSES)
        limits = Limits(settings.row_cap, settings.result_bytes)
        verifier = Verifier(parser, limits, settings.workers, settings.cache_bytes)
        requests = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="request")
        backlog = Backlog(settings.queue_items)
        app.state.resources = Resources(sandboxes, verifier, settings.domains, requests, backlog)
        suites = SuiteRuns(SuiteMaker(driver, limits, max(2, settings.workers // 2)))
        app.state.suites = suites
        tending = asyncio.create_task(_tend(sandboxes))
        # Kept results are many objects and form no cycles: looking for some among them is wasted time.
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 20)
        try:
            yield
        finally:
            tending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await tending
            await asyncio.to_thread(suites.stop)
            sandboxes.close()
            driver.close()
            requests.shutdown(cancel_futures=True)
            verifier.close()
            parser.close()

    async def room_for_sandboxes() -> str:
        return driver.obstacle() or "ok"

    def versions() -> dict[str, str]:
        return {"postgres": driver.postgres_version, "isolation": driver.isolation}

    app = create_service_app(
        "verifier", TokenFile(settings.tokens_file), lifespan, {"sandboxes": room_for_sandboxes}, versions
    )
    app.state.body_limit_bytes = settings.request_bytes
    app.include_router(verify_router)  # first: routes are tried in order
    app.include_router(router)
    app.include_router(suite_router)
    return app


async def _tend(sandboxes: Sandboxes) -> None:
    while True:
        await asyncio.sleep(TEND_SECONDS)
        await asyncio.to_thread(sandboxes.tend)
