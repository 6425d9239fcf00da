"""What the trainer may rely on, of every launcher alike: jobs of one Ray, and RayJobs of a cluster."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray._raylet import AuthenticationTokenLoader, Config

from cli.stack.home import free_ports
from services.trainer.launching.launcher import JobState, Launcher, LauncherUnavailable, RayJobLauncher
from services.trainer.launching.rayjob import KubernetesLauncher
from services.trainer.settings import JobSettings
from shared.kubernetes import KubernetesApi
from tests.deploy.helm import render
from tests.deploy.kubernetes_api import ApiStandIn
from tests.deploy.manifests import embedded

START_SECONDS = 90.0
RAY_PORTS = ("port", "dashboard-port", "dashboard-agent-listen-port", "metrics-export-port", "runtime-env-agent-port")


@pytest.fixture(scope="module", params=["rayjob", pytest.param("ray", marks=pytest.mark.slow)])
def launcher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """One that reaches what runs its jobs."""
    folder = tmp_path_factory.mktemp("launcher")
    yield from (on_kubernetes if request.param == "rayjob" else on_ray)(folder)


def on_kubernetes(folder: Path) -> Iterator[Launcher]:
    (job,) = [made for made in embedded(render("8xh100")) if made["kind"] == "RayJob"]
    (folder / "rayjob.json").write_text(json.dumps(job))
    api = ApiStandIn()
    client = KubernetesApi(api.url, "team")
    yield KubernetesLauncher(client, folder / "rayjob.json")
    client.close()
    api.close()


def on_ray(folder: Path) -> Iterator[Launcher]:
    ports = dict(zip(RAY_PORTS, free_ports(len(RAY_PORTS)), strict=True))
    (folder / "token").write_text("0" * 64)
    with tempfile.TemporaryDirectory(prefix="ray-") as short, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(folder / "token"))
        read_environment_again()
        argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2"]
        argv += ["--node-ip-address=127.0.0.1", "--include-dashboard=true", "--object-store-memory=100000000"]
        argv += [*(f"--{name}={port}" for name, port in ports.items()), f"--temp-dir={short}", "--disable-usage-stats"]
        with (folder / "ray.log").open("wb") as log:
            ray = subprocess.Popen(argv, env=os.environ, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + START_SECONDS
            while "Ray runtime started" not in (folder / "ray.log").read_text():
                assert ray.poll() is None and time.monotonic() < deadline, (folder / "ray.log").read_text()[-3000:]
                time.sleep(0.1)
            yield RayJobLauncher(f"http://127.0.0.1:{ports['dashboard-port']}", job_settings(folder))
        finally:
            ray.terminate()
            ray.wait(timeout=60)
    read_environment_again()


def read_environment_again() -> None:
    """Ray read how to prove itself when it was imported."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def job_settings(folder: Path) -> JobSettings:
    """Of jobs that find no database and end."""
    return JobSettings(
        db="postgresql://nobody:nothing@127.0.0.1:1/none",
        artifacts=folder.as_uri(),
        checkpoints=folder,
        rollout_url="http://127.0.0.1:1",
        inference_url="http://127.0.0.1:1",
        tokens_file=folder / "tokens.json",
    )


BEGUN = (JobState.ALIVE, JobState.FAILED)
"""A job without a database may have ended before it is asked for."""


async def test_a_submit_that_is_sent_twice_is_one_job_that_a_stop_ends(launcher: Launcher) -> None:
    await launcher.submit("night", 1)
    await launcher.submit("night", 1)
    assert await launcher.state("night", 1) in BEGUN
    await launcher.stop("night", 1)
    assert await launcher.state("night", 1) is not JobState.ALIVE
    await launcher.stop("night", 1)


async def test_attempts_and_runs_are_told_apart(launcher: Launcher) -> None:
    await launcher.submit("day", 2)
    assert await launcher.state("day", 2) in BEGUN
    assert await launcher.state("day", 1) is JobState.MISSING
    assert await launcher.state("days", 2) is JobState.MISSING
    await launcher.stop("day", 2)


async def test_what_nobody_knows_is_missing_has_no_log_and_stops_without_an_error(launcher: Launcher) -> None:
    assert await launcher.state("never", 1) is JobState.MISSING
    assert await launcher.log_tail("never", 1) == ""
    await launcher.stop("never", 1)
    assert await launcher.version()


async def test_a_ray_that_is_away_says_nothing_of_a_job(tmp_path: Path) -> None:
    """The other launcher's API that is away: test_rayjob_launcher.py."""
    (port,) = free_ports(1)
    with pytest.raises(LauncherUnavailable, match="Ray's job API"):
        await RayJobLauncher(f"http://127.0.0.1:{port}", job_settings(tmp_path)).state("night", 1)
