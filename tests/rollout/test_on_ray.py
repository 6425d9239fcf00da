"""The service as it runs: `python -m services.rollout` on a real Ray, killed in several places."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from cli.stack.home import free_ports
from shared.auth import read_token
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.rollout import RolloutClient
from shared.contracts.rollout import SamplingState
from shared.contracts.tasks import Split
from tests.rollout.conftest import TASKS, eventually, is_true
from tests.rollout.killing import command
from tests.rollout.scripted import Script, stand_ins
from tests.rollout.test_batches import DIGEST, batch, groups_and_end
from tests.rollout.test_samplings import all_rows, assert_each_once, ended, request
from tests.serving import served

pytestmark = pytest.mark.slow

START_SECONDS = 90


@dataclass
class OnRay:
    """A Ray with the rollout service on it."""

    environment: dict[str, str]
    log: Path
    url: str
    process: "subprocess.Popen[bytes]"
    starts: int = 0

    def start(self) -> None:
        """Start the service's process and wait until it says that it serves."""
        with self.log.open("ab") as log:
            argv = [sys.executable, "-m", "services.rollout"]
            self.process = subprocess.Popen(argv, env=self.environment, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        self.starts += 1
        while self.log.read_text().count("rollout serves on") < self.starts:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.2)

    def answers(self) -> bool:
        """Whether the ingress is up."""
        try:
            return httpx.get(f"{self.url}/healthz", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def actors(self, name: str) -> list[psutil.Process]:
        """Processes of this Ray that run the actor class `name`."""
        mark = self.environment["RAY_ADDRESS"]
        found = []
        for process in psutil.process_iter():
            try:
                if name in " ".join(process.cmdline()) and process.environ().get("RAY_ADDRESS") == mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def settings() -> dict[str, str]:
    """Variables in which a test's service differs."""
    return {}


@pytest.fixture
def on_ray(script: Script, control_db: str, tokens: Path, tmp_path: Path, settings: dict[str, str]) -> Iterator[OnRay]:
    """Ray, the service, and scripted neighbours."""
    ray_port, port = free_ports(2)
    token = tmp_path / "ray-token"
    token.write_text("0" * 64)
    with served(stand_ins(script)) as neighbours, tempfile.TemporaryDirectory(prefix="ray-") as short:
        environment = os.environ | {
            "RAY_ADDRESS": f"127.0.0.1:{ray_port}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "SQLCLIMB_DB": control_db,
            "SQLCLIMB_PORT": str(port),
            "SQLCLIMB_TOKENS_FILE": str(tokens),
            "SQLCLIMB_TOKEN_NAME": "rollout",
            "SQLCLIMB_RAY_ADDRESS": f"127.0.0.1:{ray_port}",
            "SQLCLIMB_AUTHOR_URL": f"{neighbours}/author",
            "SQLCLIMB_VERIFIER_URL": f"{neighbours}/verifier",
            "SQLCLIMB_INFERENCE_URL": f"{neighbours}/inference",
            "SQLCLIMB_RETRY_WAIT_SECONDS": "0.1",
            **settings,
        }
        argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=4"]
        argv += ["--node-ip-address=127.0.0.1", f"--port={ray_port}", "--include-dashboard=false"]
        argv += ["--object-store-memory=100000000", f"--temp-dir={short}", "--disable-usage-stats"]
        ray_log = (tmp_path / "ray.log").open("wb")
        ray = subprocess.Popen(argv, env=environment, stdout=ray_log, stderr=ray_log, start_new_session=True)
        handle = OnRay(environment, tmp_path / "rollout.log", f"http://127.0.0.1:{port}", ray)
        try:
            wait_for_ray(ray, environment, tmp_path / "ray.log")
            handle.start()
            yield handle
        finally:
            handle.process.terminate()
            handle.process.wait(timeout=60)
            ray.terminate()
            ray.wait(timeout=60)
            ray_log.close()


def wait_for_ray(ray: "subprocess.Popen[bytes]", environment: dict[str, str], log: Path) -> None:
    """Until Ray's own log says it has started."""
    deadline = time.monotonic() + START_SECONDS
    while "Ray runtime started" not in log.read_text():
        assert ray.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)


async def test_killed_anywhere_it_goes_on_and_every_row_is_there_once(
    on_ray: OnRay, script: Script, tokens: Path, control_db: str
) -> None:
    """One start of Ray serves all of it: a worker, the coordinator and the service's process are killed."""
    script.latency_seconds = 0.5
    async with RolloutClient(on_ray.url, read_token(tokens, "user"), timeout_seconds=10) as client:
        assert (await client.readiness()).ready
        for name in ("RolloutWorker", "Coordinator"):
            await client.start(request(name))
            await eventually(is_true(lambda: script.entered > 0))
            (killed,) = on_ray.actors(name)
            os.kill(killed.pid, signal.SIGKILL)
            await eventually(partial(is_done, client, name), seconds=90)
            assert_each_once(await all_rows(client, name))
            script.entered = 0

        await client.start(request("service"))
        on_ray.process.kill()
        on_ray.process.wait()
        on_ray.start()
        assert (await ended(client, "service")).state is SamplingState.DONE
        assert_each_once(await all_rows(client, "service"))

    assert control_db not in ray_arguments_and_logs(on_ray)
    on_ray.process.send_signal(signal.SIGTERM)
    assert on_ray.process.wait(timeout=60) == 0
    assert not on_ray.answers()
    assert on_ray.actors("Coordinator") == []


FEW_GROUPS_A_WORKER = {
    "SQLCLIMB_WORKERS_MAX": "3",
    "SQLCLIMB_GROUPS_PER_WORKER": "2",
    "SQLCLIMB_WORKERS_IDLE_SECONDS": "0",
    "SQLCLIMB_STRAGGLER_GRACE_SECONDS": "0.5",
}


@pytest.mark.parametrize("settings", [FEW_GROUPS_A_WORKER])
async def test_workers_come_and_go_with_the_load_and_a_cut_reaches_all_of_them(
    on_ray: OnRay, script: Script, tokens: Path
) -> None:
    workers = partial(on_ray.actors, "RolloutWorker")
    async with RolloutClient(on_ray.url, read_token(tokens, "user"), timeout_seconds=10) as client:
        script.hold = threading.Event()
        await client.start(request("up"))
        await eventually(is_true(lambda: len(workers()) == 3 and script.entered == TASKS), seconds=90)
        script.hold.set()
        assert (await ended(client, "up")).progress.rerolled == 0

        script.hold, script.held_after, script.entered = threading.Event(), TASKS - 3, 0
        await client.start(request("down"))  # three groups stay: too few for three workers
        await asyncio.to_thread(wait_for_a_worker_that_drains, on_ray)
        assert script.entered == TASKS
        script.hold.set()
        down = await ended(client, "down")
        assert (down.progress.rerolled, down.progress.lost) == (0, {})
        assert_each_once(await all_rows(client, "down"))
        await eventually(is_true(lambda: len(workers()) < 3), seconds=60)

        script.publish("night", 3, DIGEST)
        train_ids = [task.id for task in script.tasks if task.split is Split.TRAIN]
        slow = {task.question for task in script.tasks if task.id in train_ids[:2]}
        script.slow, script.slow_seconds = lambda question, place: question in slow and place == 0, 60.0
        started = time.monotonic()
        _, end = await groups_and_end(client, batch(train_ids))
        assert time.monotonic() - started < 20
        assert end.lost == {"straggler": 2}


WAIT_UNTIL_ONE_STOPS = """
import time, ray
from ray import serve
ray.init(namespace="rollout", logging_level="ERROR")
while "STOPPING" not in serve.status().applications["rollout"].deployments["RolloutWorker"].replica_states:
    time.sleep(0.2)
"""


def wait_for_a_worker_that_drains(on_ray: OnRay) -> None:
    """Returns when Serve has told a worker to go that has not gone: groups are still with it."""
    subprocess.run([sys.executable, "-c", WAIT_UNTIL_ONE_STOPS], env=on_ray.environment, timeout=120, check=True)


async def is_done(client: RolloutClient, name: str) -> bool:
    try:
        return (await client.sampling(name)).state is SamplingState.DONE
    except (ServiceUnreachable, ServiceProblem):  # it was just killed
        return False


def ray_arguments_and_logs(on_ray: OnRay) -> str:
    """Everything a password could have leaked into: the argv of Ray's processes and the service's log."""
    commands = [command(process) for process in on_ray.actors("ray")]
    return "\n".join(commands) + on_ray.log.read_text()
