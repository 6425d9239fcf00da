"""Tokens are rotated on both sides of a call while both sides run."""

import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from shared import web
from shared.auth import OwnToken, Scope, TokenFile, read_token, write_tokens
from shared.clients.base import ServiceClient, ServiceProblem
from shared.contracts.base import Contract
from tests.serving import served


class Thing(Contract):
    name: str


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield


@pytest.fixture
def callee(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A service with one endpoint that needs a token, and its tokens file."""
    tokens = tmp_path / "callee.json"
    write_tokens(tokens, {"rollout": [Scope.GOLD]})
    app = web.create_app("callee", TokenFile(tokens), lifespan, {}, dict)

    @app.get("/v1/thing", dependencies=[web.needs(Scope.GOLD)])
    async def thing() -> Thing:
        return Thing(name="found")

    with served(app) as url:
        yield url, tokens


async def test_a_client_that_is_open_takes_the_new_token_and_the_old_one_stops_working(
    callee: tuple[str, Path], tmp_path: Path
) -> None:
    url, theirs = callee
    ours = tmp_path / "caller.json"
    ours.write_text(theirs.read_text())
    old = read_token(ours, "rollout")
    async with ServiceClient(url, OwnToken(ours, "rollout")) as client, ServiceClient(url, old) as kept:
        assert (await client.call("GET", "/v1/thing", Thing)).name == "found"
        write_tokens(ours, {"rollout": [Scope.GOLD]})
        both = json.loads(ours.read_text()) | {"old": json.loads(theirs.read_text())["rollout"]}
        theirs.write_text(json.dumps(both))  # the callee learns the new one and still takes the old
        assert (await client.call("GET", "/v1/thing", Thing)).name == "found"
        assert (await kept.call("GET", "/v1/thing", Thing)).name == "found"
        theirs.write_text(ours.read_text())
        os.utime(theirs, ns=(1, 1))  # another time than before, however coarse the clock
        assert (await client.call("GET", "/v1/thing", Thing)).name == "found"
        with pytest.raises(ServiceProblem, match="token"):
            await kept.call("GET", "/v1/thing", Thing)


def test_a_half_written_file_keeps_the_token_that_worked(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    write_tokens(tokens, {"trainer": [Scope.TRAIN]})
    token = OwnToken(tokens, "trainer")
    secret = token()
    for text in ('{"trainer": {"tok', "{}", '{"trainer": {}}'):
        tokens.write_text(text)
        assert token() == secret
    tokens.unlink()
    assert token() == secret


def test_a_name_that_the_file_lacks_is_told_at_the_start(tmp_path: Path) -> None:
    write_tokens(tmp_path / "tokens.json", {"trainer": [Scope.TRAIN]})
    with pytest.raises(KeyError, match="author"):
        OwnToken(tmp_path / "tokens.json", "author")
