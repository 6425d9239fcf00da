"""The trainer's FastAPI app and what it holds open."""

import asyncio
import contextlib
import importlib.metadata
from collections.abc import AsyncIterator

from fastapi import FastAPI

from services.trainer.admission import Admission
from services.trainer.endpoints import plan_router, router
from services.trainer.guards.curves import Curves
from services.trainer.launching.choice import open_launcher
from services.trainer.planning.planner import Planner
from services.trainer.repository import RunRepository
from services.trainer.service import RunService
from services.trainer.settings import TrainerSettings
from services.trainer.supervised.golds import GoldReader
from services.trainer.supervised.intake import Intake
from shared import web
from shared.auth import OwnToken, TokenFile
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.database import check_database, open_pool


def create_app(settings: TrainerSettings) -> FastAPI:
    """The app. Raises ValueError for a faulty tokens file."""
    pool = open_pool(settings.db.get_secret_value())
    launcher = open_launcher(settings)
    tokens = TokenFile(settings.tokens_file)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        token = OwnToken(settings.tokens_file, settings.token_name)
        async with (
            pool,
            RolloutClient(settings.rollout_url, token) as rollout,
            InferenceClient(settings.inference_url, token) as inference,
        ):
            repository = RunRepository(pool)
            app.state.planner = Planner(rollout)
            app.state.intake = Intake(rollout, GoldReader(settings, settings.tokens_file))
            admission = Admission(rollout, inference, settings.artifacts, app.state.intake)
            app.state.runs = RunService(repository, launcher, admission.check, Curves(repository, rollout, inference))
            watch = asyncio.create_task(app.state.runs.watch())
            try:
                yield
            finally:
                watch.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watch

    async def ray() -> str:
        await launcher.version()
        return "ok"

    async def versions() -> dict[str, str]:
        packages = {name: importlib.metadata.version(name) for name in ("ray", "trl", "peft", "torch")}
        return packages | {"ray_job_api": await launcher.version()}

    checks: dict[str, web.Check] = {"database": lambda: check_database(pool), "ray": ray}
    app = web.create_app("trainer", tokens, lifespan, checks, versions)
    app.include_router(router)
    app.include_router(plan_router)
    return app
