"""A runs API over HTTP with a real control database, peers over HTTP and a launcher whose jobs do as told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.trainer.admission import Admission
from services.trainer.endpoints import plan_router, router
from services.trainer.guards.curves import Curves
from services.trainer.launching.launcher import JobState, LauncherUnavailable
from services.trainer.planning.planner import Planner
from services.trainer.repository import RunRepository
from services.trainer.service import RunService
from services.trainer.settings import JobSettings
from services.trainer.supervised.golds import GoldReader
from services.trainer.supervised.intake import Intake
from shared import web
from shared.auth import TokenFile, read_token
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.contracts.trainer import RunState
from shared.database import open_pool
from tests.models import make_model
from tests.trainer.peer_app import serving
from tests.trainer.peers import Peers
from tests.trainer.test_learner import run_config


class ScriptedLauncher:
    """A launcher whose jobs do what the test says."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, int], JobState] = {}
        self.reachable = True
        self.submitting = asyncio.Event()
        self.free = asyncio.Event()
        """Cleared: submissions take until it is set."""
        self.free.set()

    def _reach(self) -> None:
        if not self.reachable:
            raise LauncherUnavailable("no Ray there")

    async def submit(self, run_id: str, attempt: int) -> None:
        self._reach()
        self.submitting.set()
        await self.free.wait()
        self._reach()
        self.jobs[run_id, attempt] = JobState.ALIVE

    async def state(self, run_id: str, attempt: int) -> JobState:
        self._reach()
        return self.jobs.get((run_id, attempt), JobState.MISSING)

    async def log_tail(self, run_id: str, attempt: int) -> str:
        return "MemoryError: 4 GB"

    async def stop(self, run_id: str, attempt: int) -> None:
        self._reach()
        if (run_id, attempt) in self.jobs:
            self.jobs[run_id, attempt] = JobState.STOPPED

    async def version(self) -> str:
        return "scripted"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def peers(model: Path, tokens: Path) -> Iterator[Peers]:
    with serving(model, tokens) as peers:
        yield peers


class Api:
    """The API, its database, its jobs."""

    def __init__(self, http: httpx.AsyncClient, launcher: ScriptedLauncher, dsn: str, model: Path) -> None:
        self.http, self.launcher, self.dsn = http, launcher, dsn
        self.config = run_config(model).model_dump(mode="json")

    async def start(self, run_id: str = "night", **changes: Any) -> httpx.Response:
        return await self.http.post("/v1/runs", json={"run_id": run_id, "config": self.config | changes})

    async def state_after(self, wanted: RunState, run_id: str = "night") -> dict[str, Any]:
        """The run once it is in that state; the watch needs a moment."""
        for _ in range(200):
            run: dict[str, Any] = (await self.http.get(f"/v1/runs/{run_id}")).json()
            if run["state"] == wanted:
                return run
            await asyncio.sleep(0.05)
        raise AssertionError(f"still {run['state']}: {run['error']}")


@contextlib.asynccontextmanager
async def runs_app(
    settings: JobSettings, control_db: str, tokens: Path, launcher: ScriptedLauncher
) -> AsyncIterator[Any]:
    """The runs API with its parts, but for the watch. `settings`: artifacts, addresses, how golds are read."""
    token = read_token(tokens, "trainer")

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield

    async with (
        open_pool(control_db) as pool,
        RolloutClient(settings.rollout_url, token) as rollout,
        InferenceClient(settings.inference_url, token) as inference,
    ):
        app = web.create_app("trainer", TokenFile(tokens), lifespan, {}, dict)
        app.include_router(router)
        app.include_router(plan_router)
        app.state.planner = Planner(rollout)
        app.state.intake = Intake(rollout, GoldReader(settings, tokens))
        repository = RunRepository(pool)
        admission = Admission(rollout, inference, settings.artifacts, app.state.intake)
        app.state.runs = RunService(repository, launcher, admission.check, Curves(repository, rollout, inference))
        yield app


@pytest.fixture
async def api(
    control_db: str, tokens: Path, peers: Peers, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Api]:
    monkeypatch.setattr("services.trainer.service.WATCH_SECONDS", 0.05)
    launcher = ScriptedLauncher()
    artifacts = (tmp_path / "artifacts").as_uri()
    settings = JobSettings.model_construct(artifacts=artifacts, rollout_url=peers.url, inference_url=peers.url)
    async with runs_app(settings, control_db, tokens, launcher) as app:
        watch = asyncio.create_task(app.state.runs.watch())
        headers = {"authorization": f"Bearer {read_token(tokens, 'trainer')}"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://trainer", headers=headers) as http:
            yield Api(http, launcher, control_db, model)
        watch.cancel()
