"""The verifier's app: opens the sandbox driver and the parser, tends sandboxes, closes everything."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator

import anyio
from fastapi import FastAPI

from services.verifier.endpoints import router
from services.verifier.execution import Limits
from services.verifier.parser import Parser
from services.verifier.resources import Resources
from services.verifier.sandbox.local import LocalDriver
from services.verifier.sandboxes import Sandboxes
from services.verifier.service import Verifier
from services.verifier.settings import VerifierSettings
from shared.auth import TokenFile
from shared.web import create_app as create_service_app

PARSER_PROCESSES = 2
"""Parsing is 0.1 ms a statement: two keep a long statement from blocking the next batch."""

REQUESTS_AT_ONCE = 64
"""Threads that wait for worker threads; cheap."""

FREE_BYTES = 256 * 1024**2
"""Below this the verifier is not ready: about five sandboxes with three seeds each."""

TEND_SECONDS = 0.5
"""How often overdue statements and unused sandboxes are looked for."""


def create_app(settings: VerifierSettings, driver: LocalDriver) -> FastAPI:
    """The app on an opened driver; the app closes it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sandboxes = Sandboxes(driver, settings.sandbox_limit, settings.sandbox_ttl_seconds)
        parser = Parser(PARSER_PROCESSES)
        limits = Limits(settings.row_cap, settings.result_bytes)
        verifier = Verifier(parser, limits, settings.workers, settings.cache_bytes)
        requests = anyio.CapacityLimiter(REQUESTS_AT_ONCE)
        app.state.resources = Resources(sandboxes, verifier, settings.domains, requests)
        tending = asyncio.create_task(_tend(sandboxes))
        try:
            yield
        finally:
            tending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await tending
            sandboxes.close()
            driver.close()
            verifier.close()
            parser.close()

    async def room_for_sandboxes() -> str:
        free = shutil.disk_usage(settings.sandboxes).free
        if free >= FREE_BYTES:
            return "ok"
        return f"{free // 1024**2} MB free in {settings.sandboxes}, a few sandboxes need {FREE_BYTES // 1024**2}"

    def versions() -> dict[str, str]:
        return {"postgres": driver.postgres_version, "isolation": driver.isolation}

    app = create_service_app(
        "verifier", TokenFile(settings.tokens_file), lifespan, {"sandboxes": room_for_sandboxes}, versions
    )
    app.include_router(router)
    return app


async def _tend(sandboxes: Sandboxes) -> None:
    while True:
        await asyncio.sleep(TEND_SECONDS)
        await asyncio.to_thread(sandboxes.tend)
