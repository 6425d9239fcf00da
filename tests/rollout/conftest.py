"""A coordinator in this process on a real Postgres, between scripted neighbours; groups are sampled without Ray."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi import FastAPI

from services.rollout.app import build_app
from services.rollout.settings import RolloutSettings
from services.rollout.worker.group_sampler import GroupSampler
from services.rollout.worker.groups import Failed, GroupRequest, Landed
from shared.auth import read_token
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.clients.verifier import VerifierClient
from shared.contracts.tasks import Split
from shared.domain import find_bundle
from shared.settings import REPOSITORY
from tests.rollout.scripted import Script, make_task, stand_ins
from tests.serving import served

TASKS = 12


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    """Returns once it holds."""
    deadline = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < deadline, f"did not come to hold in {seconds} s"
        await asyncio.sleep(0.02)


def is_true(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return condition()

    return check


class DirectSampler:
    """The worker's own function, called in the coordinator's process."""

    def __init__(self, settings: RolloutSettings) -> None:
        token = read_token(settings.tokens_file, settings.token_name)
        self.inference = InferenceClient(settings.inference_url, token)
        self.verifier = VerifierClient(settings.verifier_url, token)
        self._groups = GroupSampler(self.inference, self.verifier, settings.verify_patience_seconds, settings.egress)

    def sample(self, request: GroupRequest) -> AsyncGenerator[Landed | Failed, None]:
        return self._groups.sample(request)

    async def close(self) -> None:
        await self._groups.close()

    async def cut(self, sampling_id: str) -> None:
        self._groups.cut(sampling_id)


@pytest.fixture
def script() -> Script:
    """Neighbours with 12 holdout and 12 train tasks."""
    holdout = [make_task(number, right=number % 5) for number in range(TASKS)]
    train = [make_task(100 + number, right=number % 5, split=Split.TRAIN) for number in range(TASKS)]
    return Script(bundle=find_bundle("shop", [REPOSITORY / "domains"]), tasks=holdout + train)


@dataclass(frozen=True)
class Coordinator:
    """Where a coordinator listens, and a client's token for it."""

    url: str
    token: str

    def client(self) -> RolloutClient:
        """Use as `async with`."""
        return RolloutClient(self.url, self.token)


StartCoordinator = Callable[[], AbstractContextManager[Coordinator]]


@pytest.fixture
def settings_changes() -> dict[str, object]:
    """Settings in which a test's coordinator differs from all others'; a test module overrides it."""
    return {}


@pytest.fixture
def start_coordinator(
    script: Script, control_db: str, tokens: Path, settings_changes: dict[str, object]
) -> Iterator[StartCoordinator]:
    """Starts a coordinator on the test's ledger; a test may start another after it."""
    with served(stand_ins(script)) as neighbours:
        fields: dict[str, object] = {
            "port": 1,
            "tokens_file": tokens,
            "token_name": "rollout",
            "db": control_db,
            "author_url": f"{neighbours}/author",
            "verifier_url": f"{neighbours}/verifier",
            "inference_url": f"{neighbours}/inference",
            "groups_in_flight": 4,
            "group_retries": 2,
            "retry_wait_seconds": 0.01,
            "verify_patience_seconds": 5.0,
            "endpoints_allowed": ["public", "http://127.0.0.1"],
        }
        settings = RolloutSettings.model_validate(fields | settings_changes)

        @contextmanager
        def start() -> Iterator[Coordinator]:
            sampler = DirectSampler(settings)
            app = build_app(settings, sampler)
            of_the_coordinator = app.router.lifespan_context

            @asynccontextmanager
            async def lifespan(app: FastAPI) -> AsyncIterator[None]:
                async with sampler.inference, sampler.verifier, of_the_coordinator(app):
                    yield
                await sampler.close()

            app.router.lifespan_context = lifespan
            with served(app) as url:
                yield Coordinator(url, read_token(tokens, "user"))

        yield start


@pytest.fixture
def coordinator(start_coordinator: StartCoordinator) -> Iterator[Coordinator]:
    """One coordinator for the whole test."""
    with start_coordinator() as started:
        yield started
