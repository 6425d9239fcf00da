"""The gateway's app: the control database, the engines, and the task that looks after them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI

from services.inference.endpoints import router
from services.inference.fetching import Fetcher
from services.inference.fleet import Fleet
from services.inference.replica import Replica
from services.inference.repository import Repository
from services.inference.service import AdapterService
from services.inference.settings import GatewaySettings
from shared.auth import TokenFile
from shared.database import check_database, open_pool
from shared.web import Check
from shared.web import create_app as create_service_app


def create_app(settings: GatewaySettings) -> FastAPI:
    """The app. Raises ValueError for a faulty tokens file."""
    pool = open_pool(settings.db.get_secret_value())
    fleet = Fleet([Replica(url) for url in settings.engine_urls], settings.served_name, settings.noise_nats)
    fetcher = Fetcher(settings.adapters_cache, settings.model, settings.max_lora_rank)
    service = AdapterService(Repository(pool), fleet, fetcher, settings.max_loras, settings.drain_seconds)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with pool:
            await service.start()
            app.state.service = service
            tending = asyncio.create_task(service.tend())
            try:
                yield
            finally:
                tending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await tending
                for replica in fleet.replicas:
                    await replica.close()

    async def database() -> str:
        return await check_database(pool)

    async def engine() -> str:
        return "ok" if all(replica.up for replica in fleet.replicas) else fleet.state

    async def adapters() -> str:
        missing = service.missing()
        return "ok" if not missing else f"not on every engine now: {', '.join(missing)}"

    async def versions() -> dict[str, str]:
        found = {"model": settings.model}
        for number, replica in enumerate(fleet.replicas):
            if replica.up:
                found["vllm" if number == 0 else f"vllm_{number}"] = await replica.version()
        return found

    checks: dict[str, Check] = {"database": database, "engine": engine, "adapters": adapters}
    app = create_service_app("inference", TokenFile(settings.tokens_file), lifespan, checks, versions)
    app.include_router(router)
    return app
