"""A real verifier and a real author as processes on free ports; the shop's catalogue."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx
import psycopg
import pytest

from services.author.catalogue import Catalogue, read_catalogue
from services.author.gates.knowledge import Knowledge
from services.author.grounds import Grounds, open_grounds
from shared.auth import Scope, read_token, write_tokens
from shared.clients.author import AuthorClient
from shared.clients.verifier import VerifierClient
from shared.contracts.author import Authoring, AuthoringRequest, AuthoringState
from shared.database import migrate
from shared.domain import Bundle, load_bundle

Answer = TypeVar("Answer")

START_SECONDS = 60
AUTHORING_SECONDS = 120
TOKEN_SCOPES = {
    "author": [Scope.AUTHOR, Scope.GOLD, Scope.SAMPLE],
    "rollout": [Scope.SAMPLE, Scope.GOLD],
    "user": [Scope.SAMPLE, Scope.TRAIN, Scope.AUTHOR],
}
SHOP = Path(__file__).parents[2] / "domains" / "shop"


@dataclass
class ServiceProcess:
    """A running `python -m services.<name>`."""

    name: str
    tokens: Path
    folder: Path
    settings: dict[str, str]
    url: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start and wait for readiness."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}"
        own = {"PORT": str(port), "TOKENS_FILE": str(self.tokens), "TOKEN_NAME": "author", **self.settings}
        environment = os.environ | {f"SQLCLIMB_{name}": value for name, value in own.items()}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"services.{self.name}"], env=environment, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"{self.name} did not start: {self.log.read_text()[-2000:]}")

    @property
    def log(self) -> Path:
        """What it wrote to standard error."""
        return self.folder / f"{self.name}.log"

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """SIGTERM."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    def token(self, name: str) -> str:
        """The secret of a named token."""
        return read_token(self.tokens, name)


@pytest.fixture(scope="session")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One verifier for the session; its tokens file is everyone's."""
    folder = tmp_path_factory.mktemp("author")
    tokens = folder / "tokens.json"
    write_tokens(tokens, TOKEN_SCOPES)
    running = ServiceProcess("verifier", tokens, folder, {"SANDBOXES": str(folder / "sandboxes")})
    running.start()
    yield running
    running.stop()


@pytest.fixture
def author(verifier: ServiceProcess, control_db: str, tmp_path: Path) -> Iterator[ServiceProcess]:
    """An author of one test, on a fresh control database."""
    running = ServiceProcess("author", verifier.tokens, tmp_path, {"DB": control_db, "VERIFIER_URL": verifier.url})
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def standing_author(
    verifier: ServiceProcess, control_cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    """An author for the session, for tests that start and stop nothing."""
    with psycopg.connect(control_cluster, autocommit=True) as connection:
        connection.execute("CREATE DATABASE standing_author")
    dsn = control_cluster.rsplit("/", 1)[0] + "/standing_author"
    migrate(dsn)
    folder = tmp_path_factory.mktemp("standing-author")
    running = ServiceProcess("author", verifier.tokens, folder, {"DB": dsn, "VERIFIER_URL": verifier.url})
    running.start()
    yield running
    running.stop()


@pytest.fixture
async def grounds(verifier: ServiceProcess, shop: Bundle) -> AsyncIterator[Grounds]:
    """Where the gates run golds of the shop."""
    async with (
        VerifierClient(verifier.url, verifier.token("author"), timeout_seconds=300) as client,
        open_grounds(client, shop, "author-tests") as opened,
    ):
        yield opened


@pytest.fixture(scope="session")
def shop() -> Bundle:
    """The shipped domain."""
    return load_bundle(SHOP)


@pytest.fixture(scope="session")
def catalogue(shop: Bundle) -> Catalogue:
    """Its catalogue."""
    return read_catalogue(shop.schema_sql, shop.seed_sql)


@pytest.fixture(scope="session")
def knowledge(shop: Bundle, catalogue: Catalogue) -> Knowledge:
    """What it tells everyone."""
    return Knowledge.of(shop, catalogue)


def call(author: ServiceProcess, work: Callable[[AuthorClient], Awaitable[Answer]]) -> Answer:
    """One conversation with the author, under the `author` token."""

    async def conversation() -> Answer:
        async with AuthorClient(author.url, author.token("author")) as client:
            return await work(client)

    return asyncio.run(conversation())


def finished(author: ServiceProcess, request: AuthoringRequest) -> Authoring:
    """Post an authoring and wait for its end."""
    call(author, lambda client: client.start(request))
    return awaited(author, request.authoring_id, lambda authoring: authoring.state is not AuthoringState.RUNNING)


def awaited(author: ServiceProcess, authoring_id: str, is_so: Callable[[Authoring], bool]) -> Authoring:
    """Poll until it is so."""
    deadline = time.monotonic() + AUTHORING_SECONDS
    headers = {"authorization": f"Bearer {author.token('author')}"}
    with httpx.Client(base_url=author.url, headers=headers) as polling:
        while True:
            answer = polling.get(f"/v1/authorings/{authoring_id}")
            authoring = Authoring.model_validate_json(answer.raise_for_status().content)
            if is_so(authoring):
                return authoring
            assert time.monotonic() < deadline, authoring
            time.sleep(0.05)
