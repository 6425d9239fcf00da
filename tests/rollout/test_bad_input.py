"""What a user gets wrong, and machinery that is not what it should be: a clear error, and nothing lost."""

import asyncio
import contextlib
import secrets
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from cli.stack.home import free_ports
from shared.clients.base import ServiceProblem
from shared.contracts.rollout import SamplingParameters, SamplingState
from shared.database import migrate
from shared.errors import Unavailable
from tests.conftest import start_control_server, stop_control_server
from tests.rollout.conftest import Coordinator, StartCoordinator
from tests.rollout.scripted import Script
from tests.rollout.test_samplings import TASKS, K, all_rows, assert_each_once, landed, request, until
from tests.serving import served

PAGE = "<!doctype html><title>Sign in</title>"
DISK_MB = 128
AWAY_SECONDS = 30


WRONG = [
    ({"parameters": {"k": 0, "max_tokens": 64}}, "parameters.k"),
    ({"parameters": {"k": 65, "max_tokens": 64}}, "parameters.k"),
    ({"parameters": {"k": 4, "temperature": 0}}, "parameters"),
    ({"parameters": {"k": 4, "max_tokens": 0}}, "parameters.max_tokens"),
    ({"limit": 0}, "limit"),
    ({"split": "test"}, "split"),
]

UNSTORABLE = [
    {"endpoint": {"url": "http://127.0.0.1/v1", "model": "a\0b"}},
    {"task_ids": ["a\0b"]},
]


async def test_a_value_that_cannot_be_is_named_and_nothing_is_started(coordinator: Coordinator) -> None:
    headers = {"authorization": f"Bearer {coordinator.token}"}
    async with httpx.AsyncClient(base_url=coordinator.url, headers=headers) as http:
        for changes, field in WRONG:
            answer = await http.post("/v1/samplings", json=request().model_dump(mode="json") | changes)
            assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
            assert [error["field"] for error in answer.json()["errors"]] == [field]
            assert (await http.get("/v1/samplings/one")).status_code == 404


async def test_what_no_database_can_hold_is_refused_and_not_a_crash(coordinator: Coordinator) -> None:
    headers = {"authorization": f"Bearer {coordinator.token}"}
    async with httpx.AsyncClient(base_url=coordinator.url, headers=headers) as http:
        for changes in UNSTORABLE:
            body = request().model_dump(mode="json", exclude={"policy", "endpoint"}) | changes
            answer = await http.post("/v1/samplings", json=body)
            assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), (
                answer.text
            )
        assert (await http.get("/v1/samplings/a%00b")).status_code in (404, 422)
        assert (await http.get("/v1/reports", params={"sampling": "a\0b"})).status_code in (404, 422)
        assert (await http.get("/v1/samplings")).json()["samplings"] == []


async def test_a_task_set_that_is_empty_is_refused_with_the_command_that_makes_tasks(
    coordinator: Coordinator, script: Script
) -> None:
    script.tasks.clear()
    async with coordinator.client() as client:
        with pytest.raises(ServiceProblem, match=r"no task in split holdout.*sqlclimb author") as refused:
            await client.start(request())
    assert refused.value.problem.status == 422


@pytest.fixture
def web_page() -> Iterator[str]:
    """An address that answers every request with a page, as a login proxy does."""
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST", "DELETE"])
    def page(path: str) -> HTMLResponse:
        return HTMLResponse(PAGE)

    with served(app) as url:
        yield url


class TestAnAddressThatAnswersHtml:
    @pytest.fixture
    def settings_changes(self, web_page: str, service: str) -> dict[str, object]:
        return {f"{service}_url": web_page}

    @pytest.mark.parametrize("service", ["inference", "author"])
    async def test_is_named_and_nothing_is_started(self, coordinator: Coordinator, service: str) -> None:
        async with coordinator.client() as client:
            with pytest.raises(ServiceProblem, match=f"{service} at http.*text/html") as refused:
                await client.start(request())
            assert refused.value.problem.status == Unavailable.status
            with pytest.raises(ServiceProblem, match="no sampling"):
                await client.sampling("one")

    @pytest.mark.parametrize("service", ["verifier"])
    async def test_pauses_a_sampling_and_is_named_there(self, coordinator: Coordinator, service: str) -> None:
        async with coordinator.client() as client:
            await client.start(request())
            paused = await until(client, "one", SamplingState.PAUSED)
            assert f"{service} at http" in paused.error
            await client.cancel("one")


@dataclass
class OwnDatabase:
    """A control database of its own in a folder, that a test may stop."""

    folder: Path
    dsn: str
    server: "subprocess.Popen[bytes]"

    def restart(self) -> None:
        """After a stop."""
        self.server = start_control_server(self.folder, self.dsn)


@contextlib.contextmanager
def own_database(folder: Path) -> Iterator[OwnDatabase]:
    """Migrated; stopped at the end."""
    dsn = f"postgresql://sqlclimb:{secrets.token_hex(8)}@127.0.0.1:{free_ports(1)[0]}/postgres"
    database = OwnDatabase(folder, dsn, start_control_server(folder, dsn))
    try:
        migrate(dsn)
        yield database
    finally:
        stop_control_server(database.server)


@pytest.mark.slow
class TestADatabaseThatGoesAway:
    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[OwnDatabase]:
        (tmp_path / "own").mkdir()
        with own_database(tmp_path / "own") as database:
            yield database

    @pytest.fixture
    def control_db(self, database: OwnDatabase) -> str:
        return database.dsn

    async def test_for_30_seconds_delays_a_sampling_and_costs_no_row(
        self, start_coordinator: StartCoordinator, database: OwnDatabase, script: Script
    ) -> None:
        script.latency_seconds = 0.3
        with start_coordinator() as coordinator:
            async with coordinator.client() as client:
                await client.start(request())
                await landed(client, 2 * K)
                stop_control_server(database.server)
                answers = len(script.asked)
                await asyncio.sleep(AWAY_SECONDS)
                database.restart()
                done = await until(client, "one", SamplingState.DONE, seconds=120)
                rows = await all_rows(client, "one")
        assert_each_once(rows)
        assert (done.progress.landed, done.progress.lost, done.progress.rerolled) == (TASKS * K, {}, 0)
        assert len(script.asked) == TASKS  # replies waited for the ledger; none was drawn twice
        assert answers < TASKS


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own with room for a control database and little else."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", folder], check=False)
    if done.returncode != 0:
        pytest.skip("a file system of its own needs the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.slow
class TestADiskThatIsFull:
    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[OwnDatabase]:
        with small_disk(tmp_path / "disk") as disk, own_database(disk) as database:
            yield database

    @pytest.fixture
    def control_db(self, database: OwnDatabase) -> str:
        return database.dsn

    async def test_pauses_a_sampling_with_the_disks_own_words_and_costs_no_row(
        self, start_coordinator: StartCoordinator, database: OwnDatabase, script: Script
    ) -> None:
        script.hold, script.held_after = threading.Event(), 2
        many = SamplingParameters(k=64, max_tokens=64)
        with start_coordinator() as coordinator:
            async with coordinator.client() as client:
                await client.start(request(parameters=many))
                await landed(client, 2 * many.k)
                filler = fill(database.folder)
                script.hold.set()
                paused = await until(client, "one", SamplingState.PAUSED, seconds=60)
                assert "No space left on device" in paused.error
                assert (await client.report("one")).lines[0].rows >= 2 * many.k  # what landed can be read all the while
                filler.unlink()
                await until(client, "one", SamplingState.DONE, seconds=120)
                rows = await all_rows(client, "one")
        assert_each_once(rows, k=many.k)
        assert len(script.asked) == TASKS


def fill(disk: Path) -> Path:
    """Takes all the room there is; gives the file that holds it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler
