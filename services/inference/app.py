"""The gateway's app: the control database, the engines, and the task that looks after them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from fastapi import FastAPI

from services.inference.adapters.alias_repository import AliasRepository
from services.inference.adapters.aliases import AliasService
from services.inference.adapters.fetching import Fetcher
from services.inference.adapters.repository import Repository
from services.inference.adapters.service import AdapterService
from services.inference.adapters.uploads import Uploads
from services.inference.endpoints import router
from services.inference.gateway.discovery import Discovery
from services.inference.gateway.fleet import Fleet, Limits
from services.inference.settings import GatewaySettings
from shared.auth import TokenFile
from shared.database import check_database, open_pool
from shared.web import Check
from shared.web import create_app as create_service_app

log = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
"""How old what `/v1/pressure` tells may be, and how soon a replica that discovery found is asked."""

STREAMED = ("/v1/uploads", "/v1/chat/completions", "/v1/completions")
"""Paths that read their bodies themselves."""


async def watch(discovery: Discovery, fleet: Fleet) -> None:
    """For ever: who belongs to the fleet, and how busy each replica is."""
    while True:
        try:
            await fleet.join(await discovery.find())
            await fleet.measure()
        except Exception:
            log.exception("engines could not be measured")
        await asyncio.sleep(WATCH_SECONDS)


def create_app(settings: GatewaySettings) -> FastAPI:
    """The app. Raises ValueError for a faulty tokens file."""
    pool = open_pool(settings.db.get_secret_value())
    discovery = Discovery(settings.engine_urls, settings.engine_dns)
    limits = Limits(settings.max_in_flight, settings.affinity_spill)
    fleet = Fleet(settings.served_name, settings.noise_nats, limits)
    fetcher = Fetcher(settings.adapters_cache, settings.model, settings.max_lora_rank, settings.egress)
    service = AdapterService(Repository(pool), fleet, fetcher, settings.max_loras, settings.drain_seconds)
    aliases = AliasService(AliasRepository(pool), service)
    uploads = Uploads(settings.artifacts, settings.adapters_cache)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with pool:
            await fleet.join(await discovery.find())
            await aliases.start()
            await service.start()
            app.state.service, app.state.aliases, app.state.uploads = service, aliases, uploads
            tasks = [asyncio.create_task(service.tend()), asyncio.create_task(watch(discovery, fleet))]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await fleet.close()

    async def database() -> str:
        return await check_database(pool)

    async def engine() -> str:
        return "ok" if fleet.serves(fleet.base) else fleet.state

    async def adapters() -> str:
        missing = service.missing()
        return "ok" if not missing else f"on no engine now: {', '.join(missing)}"

    async def versions() -> dict[str, str]:
        found = {"model": settings.model}
        for number, replica in enumerate(fleet.replicas):
            if replica.up:
                found["vllm" if number == 0 else f"vllm_{number}"] = await replica.version()
        return found

    checks: dict[str, Check] = {"database": database, "engine": engine, "adapters": adapters}
    app = create_service_app("inference", TokenFile(settings.tokens_file), lifespan, checks, versions, STREAMED)
    app.include_router(router)
    return app
