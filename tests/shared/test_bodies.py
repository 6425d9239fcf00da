"""Bodies larger than their caller may send are answered 413 before they fill the memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from fastapi import FastAPI, Request

from shared import bodies
from shared.auth import Scope, TokenFile, read_token
from shared.contracts.base import Contract, Problem
from shared.web import create_app, needs


class Body(Contract):
    text: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield


@pytest.fixture
async def client(tokens: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app("toy", TokenFile(tokens), lifespan, {}, dict, streamed=["/v1/files"])

    @app.post("/v1/texts", dependencies=[needs(Scope.TRAIN)])
    async def texts(body: Body) -> int:
        if body.text == "\0":
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        if body.text == "away":
            raise psycopg.OperationalError("connection refused: password=secret")
        return len(body.text)

    @app.post("/v1/files", dependencies=[needs(Scope.TRAIN)])
    async def files(request: Request) -> int:
        return sum([len(part) async for part in request.stream()])

    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as found:
        yield found


@pytest.fixture
def bearer(tokens: Path) -> dict[str, str]:
    return {"authorization": f"Bearer {read_token(tokens, 'trainer')}", "content-type": "application/json"}


class Parts:
    """A body without a declared length; how many of its parts were read."""

    def __init__(self, count: int) -> None:
        self.count, self.read = count, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.count):
            self.read += 1
            yield bytes(1000)


@pytest.mark.parametrize("declared", [True, False])
async def test_a_caller_without_a_token_cannot_fill_the_memory(client: httpx.AsyncClient, declared: bool) -> None:
    parts = Parts(1000)
    content = bytes(1_000_000) if declared else parts
    answer = await client.post("/v1/texts", content=content, headers={"content-type": "application/json"})
    problem = Problem.model_validate_json(answer.content)
    assert (problem.status, "Nothing was done" in problem.title) == (413, True)
    assert parts.read <= bodies.STRANGER_BODY_BYTES // 1000 + 1


async def test_a_known_caller_has_a_limit_too_but_not_where_the_handler_has_its_own(
    client: httpx.AsyncClient, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await client.post("/v1/texts", json={"text": "a" * 100_000}, headers=bearer)).json() == 100_000
    monkeypatch.setattr(bodies, "MAXIMUM_BODY_BYTES", 100_000)
    assert (await client.post("/v1/texts", json={"text": "a" * 100_000}, headers=bearer)).status_code == 413
    assert (await client.post("/v1/files", content=Parts(200), headers=bearer)).json() == 200_000
    stranger = Parts(200)
    assert (await client.post("/v1/files", content=stranger)).status_code == 401
    assert stranger.read <= 1


async def test_what_the_database_cannot_hold_or_does_not_take_is_a_clear_problem(
    client: httpx.AsyncClient, bearer: dict[str, str]
) -> None:
    for text, status, words in (("\0", 422, "NUL character"), ("away", 503, "ask again")):
        answer = await client.post("/v1/texts", json={"text": text}, headers=bearer)
        problem = Problem.model_validate_json(answer.content)
        assert (problem.status, words in problem.detail, "secret" in problem.detail) == (status, True, False)
