"""The author's app: a database pool, a verifier client, authorings in the background."""

import contextlib
import logging
from collections.abc import AsyncIterator
from importlib.metadata import version

from fastapi import FastAPI

from services.author.endpoints import router
from services.author.inspection import Inspection
from services.author.repository import Repository
from services.author.review import Review
from services.author.review_endpoints import router as review_router
from services.author.review_repository import ReviewRepository
from services.author.service import Author, Peers
from services.author.settings import AuthorSettings
from services.author.teachers import Teachers
from shared.auth import OwnToken, TokenFile
from shared.clients.base import ServiceUnreachable
from shared.clients.rollout import RolloutClient
from shared.clients.verifier import VerifierClient
from shared.database import check_database, open_pool
from shared.web import Check
from shared.web import create_app as create_service_app

EXECUTE_SECONDS = 300.0
"""A batch of golds, each statement at its timeout, still answers within it."""


def create_app(settings: AuthorSettings) -> FastAPI:
    """Raises ValueError or KeyError where the tokens file lacks what the settings name."""
    tokens = TokenFile(settings.tokens_file)
    token = OwnToken(settings.tokens_file, settings.token_name)
    dsn = settings.db.get_secret_value()
    pool = open_pool(dsn)
    verifier = VerifierClient(settings.verifier_url, token, EXECUTE_SECONDS)
    rollout = None if settings.rollout_url is None else RolloutClient(settings.rollout_url, token)
    for name in ("anthropic", "openai", "httpx2"):  # they log addresses and, at DEBUG, whole prompts
        logging.getLogger(name).setLevel(logging.WARNING)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with pool, verifier, rollout or contextlib.nullcontext():
            peers = Peers(verifier, rollout)
            repository, reviews = Repository(pool), ReviewRepository(pool)
            author = Author(repository, reviews, dsn, peers, settings.domains, Teachers(settings))
            await author.open()
            app.state.author = author
            app.state.review = Review(repository, reviews, verifier, settings.domains)
            app.state.inspection = Inspection(repository, app.state.review)
            try:
                yield
            finally:
                await author.close()

    async def database() -> str:
        return await check_database(pool)

    async def verifier_is_ready() -> str:
        try:
            return "ok" if (await verifier.readiness()).ready else "the verifier is not ready"
        except ServiceUnreachable as error:
            return str(error)

    def versions() -> dict[str, str]:
        return {name: version(name) for name in ("postgast", "anthropic", "openai")}

    checks: dict[str, Check] = {"database": database, "verifier": verifier_is_ready}
    app = create_service_app("author", tokens, lifespan, checks, versions)
    app.include_router(router)
    app.include_router(review_router)
    return app
