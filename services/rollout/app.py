"""The coordinator's FastAPI app: opens what it needs for its lifetime, resumes unfinished samplings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import psycopg
import ray
from fastapi import FastAPI, Request
from fastapi.responses import Response

from services.rollout.batches.repository import BatchRepository
from services.rollout.batches.service import BatchService
from services.rollout.endpoints import Services, gold_routes, sampling_routes, training_routes
from services.rollout.grounds import Grounds, ready
from services.rollout.ledger import told
from services.rollout.measuring.replay import ReplayService
from services.rollout.measuring.row_repository import RowRepository
from services.rollout.measuring.service import MeasuringService
from services.rollout.samplings.concurrency import ConcurrencyLimit
from services.rollout.samplings.dispatch import Sampler
from services.rollout.samplings.repository import Repository
from services.rollout.samplings.service import SamplingService
from services.rollout.samplings.tasks import TaskDirectory
from services.rollout.settings import RolloutSettings
from shared.auth import OwnToken, TokenFile
from shared.clients.author import AuthorClient
from shared.clients.inference import InferenceClient
from shared.clients.verifier import VerifierClient
from shared.contracts.base import Problem
from shared.database import check_database, open_pool
from shared.errors import Unavailable
from shared.web import Check, create_app, problem_response


def build_app(settings: RolloutSettings, sampler: Sampler) -> FastAPI:
    """The app around a sampler. Raises ValueError for a faulty tokens file."""
    tokens_file = TokenFile(settings.tokens_file)
    token = OwnToken(settings.tokens_file, settings.token_name)
    author = AuthorClient(settings.author_url, token)
    verifier = VerifierClient(settings.verifier_url, token)
    inference = InferenceClient(settings.inference_url, token)
    pool = open_pool(settings.db.get_secret_value())
    repository, rows, batches = Repository(pool), RowRepository(pool), BatchRepository(pool)
    limit = ConcurrencyLimit(inference.pressure, settings.groups_in_flight)
    grounds = Grounds(settings, repository, rows, author, verifier, inference, TaskDirectory(author), sampler, limit)
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
            for task in (samplings.resume_unfinished(), limit.follow()):
                stack.callback(asyncio.create_task(task).cancel)
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
    app.add_exception_handler(psycopg.OperationalError, database_away)
    app.include_router(sampling_routes)
    app.include_router(gold_routes)
    app.include_router(training_routes)
    return app


async def database_away(request: Request, error: Exception) -> Response:
    """A request that the control database did not serve."""
    away = Unavailable(told(cast(psycopg.OperationalError, error)))
    instance = request.state.request_id
    return problem_response(Problem(title=away.title, status=away.status, detail=away.detail, instance=instance))
