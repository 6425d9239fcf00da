"""The author's app: a database pool, a verifier client, authorings in the background."""

import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version

from fastapi import FastAPI

from services.author.endpoints import router
from services.author.repository import Repository
from services.author.service import Author
from services.author.settings import AuthorSettings
from services.author.teachers import TEACHERS
from shared.auth import TokenFile, read_token
from shared.clients.base import ServiceUnreachable
from shared.clients.verifier import VerifierClient
from shared.database import check_database, open_pool
from shared.web import Check
from shared.web import create_app as create_service_app

EXECUTE_SECONDS = 300.0
"""A batch of golds, each statement at its timeout, still answers within it."""


def create_app(settings: AuthorSettings) -> FastAPI:
    """Raises ValueError or KeyError where the tokens file lacks what the settings name."""
    tokens = TokenFile(settings.tokens_file)
    token = read_token(settings.tokens_file, settings.token_name)
    pool = open_pool(settings.db.get_secret_value())
    verifier = VerifierClient(settings.verifier_url, token, EXECUTE_SECONDS)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with pool, verifier:
            author = Author(Repository(pool), verifier, settings.domains, TEACHERS)
            await author.open()
            app.state.author = author
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
        return {"postgast": version("postgast")}

    checks: dict[str, Check] = {"database": database, "verifier": verifier_is_ready}
    app = create_service_app("author", tokens, lifespan, checks, versions)
    app.include_router(router)
    return app
