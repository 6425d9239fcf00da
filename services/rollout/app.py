"""The coordinator's FastAPI app: opens what it needs for its lifetime, resumes unfinished samplings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import ray
from fastapi import FastAPI

from services.rollout.batch_repository import BatchRepository
from services.rollout.batches import BatchService
from services.rollout.dispatch import Sampler
from services.rollout.endpoints import Services, gold_routes, sampling_routes, training_routes
from services.rollout.grounds import Grounds, ready
from services.rollout.measuring import MeasuringService
from services.rollout.replay import ReplayService
from services.rollout.repository import Repository
from services.rollout.row_repository import RowRepository
from services.rollout.service import SamplingService
from services.rollout.settings import RolloutSettings
from services.rollout.tasks import TaskDirectory
from shared.auth import TokenFile, read_token
from shared.clients.author import AuthorClient
from shared.clients.inference import InferenceClient
from shared.clients.verifier import VerifierClient
from shared.database import check_database, open_pool
from shared.web import Check, create_app


def build_app(settings: RolloutSettings, sampler: Sampler) -> FastAPI:
    """The app around a sampler. Raises ValueError for a faulty tokens file."""
    tokens_file = TokenFile(settings.tokens_file)
    token = read_token(settings.tokens_file, settings.token_name)
    author = AuthorClient(settings.author_url, token)
    verifier = VerifierClient(settings.verifier_url, token)
    inference = InferenceClient(settings.inference_url, token)
    pool = open_pool(settings.db.get_secret_value())
    repository, rows, batches = Repository(pool), RowRepository(pool), BatchRepository(pool)
    grounds = Grounds(settings, repository, rows, author, verifier, inference, TaskDirectory(author), sampler)
    samplings = SamplingService(grounds)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await pool.open()
            stack.push_async_callback(pool.close)
            for client in (author, verifier, inference):
                await stack.enter_async_context(client)
            app.state.services = Services(
                samplings,
                BatchService(grounds, batches),
                MeasuringService(repository, rows, batches, grounds.tasks),
                ReplayService(grounds),
            )
            stack.push_async_callback(samplings.close)
            resuming = asyncio.create_task(samplings.resume_unfinished())
            stack.callback(resuming.cancel)
            yield

    async def database() -> str:
        return await check_database(pool)

    async def author_ready() -> str:
        return await ready(author)

    async def verifier_ready() -> str:
        return await ready(verifier)

    async def inference_ready() -> str:
        return await ready(inference)

    checks: dict[str, Check] = {
        "database": database,
        "author": author_ready,
        "verifier": verifier_ready,
        "inference": inference_ready,
    }
    app = create_app("rollout", tokens_file, lifespan, checks, lambda: {"ray": ray.__version__})
    app.include_router(sampling_routes)
    app.include_router(gold_routes)
    app.include_router(training_routes)
    return app
