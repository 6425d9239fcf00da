import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from shared import web
from shared.auth import Scope, TokenFile, read_token, write_tokens
from shared.contracts.base import Contract, Problem, Readiness
from shared.errors import Conflict
from shared.web import create_app, needs


class Body(Contract):
    k: int


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield


@pytest.fixture
async def client(tokens: Path) -> AsyncIterator[httpx.AsyncClient]:
    async def database() -> str:
        return "cannot connect"

    app = create_app("toy", TokenFile(tokens), lifespan, {"database": database}, lambda: {"toy": "1"})

    @app.post("/v1/things", dependencies=[needs(Scope.TRAIN)])
    async def things(body: Body) -> Body:
        if body.k == 409:
            raise Conflict("thing 409 exists; nothing was changed")
        if body.k == 500:
            raise RuntimeError("secret")
        return body

    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as found:
        yield found


def bearer(tokens: Path, name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {read_token(tokens, name)}"}


async def test_health_is_alive_while_readiness_names_the_failed_check(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).status_code == 200
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    found = Readiness.model_validate_json(answer.content)
    assert found.checks == {"database": "cannot connect"}
    assert found.versions == {"toy": "1"}


async def test_readiness_names_what_gives_no_answer_and_does_not_wait_for_it(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()  # as psycopg: to be cancelled it asks the server that is away
        return "ok"

    async def here() -> str:
        return "ok"

    monkeypatch.setattr(web, "CHECK_SECONDS", 0.05)
    app = create_app("toy", TokenFile(tokens), lifespan, {"peer": lost, "other": here}, dict)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://toy") as client:
        answer = await client.get("/readyz", timeout=5.0)
    assert answer.status_code == 503
    assert Readiness.model_validate_json(answer.content).checks == {"peer": "no answer within 0 s", "other": "ok"}


async def test_a_missing_or_wrong_token_is_401_and_a_missing_scope_403(client: httpx.AsyncClient, tokens: Path) -> None:
    assert (await client.post("/v1/things", json={"k": 1})).status_code == 401
    wrong = {"authorization": "Bearer wrong"}
    assert (await client.post("/v1/things", json={"k": 1}, headers=wrong)).status_code == 401
    assert (await client.post("/v1/things", json={"k": 1}, headers=bearer(tokens, "author"))).status_code == 403
    for name in ("trainer", "admin"):
        assert (await client.post("/v1/things", json={"k": 1}, headers=bearer(tokens, name))).status_code == 200


async def test_a_typo_in_a_body_is_a_422_problem_that_names_the_field(client: httpx.AsyncClient, tokens: Path) -> None:
    answer = await client.post("/v1/things", json={"k": 1, "kk": 2}, headers=bearer(tokens, "trainer"))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [fault.field for fault in Problem.model_validate_json(answer.content).errors] == ["kk"]


async def test_errors_are_problems_with_the_request_id_and_no_internals(
    client: httpx.AsyncClient, tokens: Path
) -> None:
    headers = bearer(tokens, "trainer") | {"x-request-id": "abc"}
    conflict = Problem.model_validate_json((await client.post("/v1/things", json={"k": 409}, headers=headers)).content)
    assert (conflict.status, conflict.detail, conflict.instance) == (
        409,
        "thing 409 exists; nothing was changed",
        "abc",
    )
    crash = await client.post("/v1/things", json={"k": 500}, headers=headers)
    assert crash.status_code == 500
    assert "secret" not in crash.text
    assert Problem.model_validate_json((await client.get("/nowhere")).content).status == 404


async def test_metrics_count_requests_by_route(client: httpx.AsyncClient) -> None:
    await client.get("/healthz")
    text = (await client.get("/metrics")).text
    assert 'sqlclimb_http_requests_total{method="GET",route="/healthz",service="toy",status="200"}' in text


def test_tokens_rotate_without_a_restart(tokens: Path) -> None:
    file = TokenFile(tokens)
    old = read_token(tokens, "trainer")
    assert Scope.TRAIN in file.scopes_of(f"Bearer {old}")
    write_tokens(tokens, {"trainer": [Scope.TRAIN]})
    assert Scope.TRAIN in file.scopes_of(f"Bearer {read_token(tokens, 'trainer')}")
    with pytest.raises(Exception, match="Bearer"):
        file.scopes_of(f"Bearer {old}")


def test_a_placeholder_secret_is_refused_at_start(tokens: Path) -> None:
    entries = json.loads(tokens.read_text())
    entries["trainer"]["token"] = "changeme"
    tokens.write_text(json.dumps(entries))
    with pytest.raises(ValueError, match="trainer"):
        TokenFile(tokens)
