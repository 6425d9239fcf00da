"""The RayJob launcher against an API stand-in: no run is started twice, none goes on after it was stopped."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.launching import rayjob as launcher_rayjob
from services.trainer.launching.launcher import JobState, LauncherUnavailable
from services.trainer.launching.rayjob import KubernetesLauncher, job_name, job_state
from shared.kubernetes import KubernetesApi
from tests.deploy.helm import render
from tests.deploy.kubernetes_api import ApiStandIn
from tests.deploy.manifests import Manifest, embedded, ray_pods

RAYJOBS = "apis/ray.io/v1/rayjobs"
RUN = "Climb_2026.shop@a"


@pytest.fixture
def api() -> Iterator[ApiStandIn]:
    stand_in = ApiStandIn()
    yield stand_in
    stand_in.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The RayJob that the chart gives to the trainer."""
    (job,) = [made for made in embedded(render("multi-node")) if made["kind"] == "RayJob"]
    path = tmp_path_factory.mktemp("template") / "rayjob.json"
    path.write_text(json.dumps(job))
    return path


@pytest.fixture
def client(api: ApiStandIn) -> Iterator[KubernetesApi]:
    opened = KubernetesApi(api.url, "team")
    yield opened
    opened.close()


@pytest.fixture
def launcher(client: KubernetesApi, template: Path) -> KubernetesLauncher:
    return KubernetesLauncher(client, template)


def start_pods(api: ApiStandIn, name: str) -> None:
    """What KubeRay does with an admitted RayJob."""
    job = api.objects[RAYJOBS, name]
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": name, "uid": job["metadata"]["uid"]}
    for number, pod in enumerate(ray_pods(job["spec"]["rayClusterSpec"])):
        metadata = {**pod["metadata"], "name": f"{name}-{number}", "ownerReferences": [owner]}
        api.put("api/v1/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]})
    api.set_status("rayjobs", name, jobDeploymentStatus="Running", jobStatus="RUNNING")


async def test_an_attempt_is_a_suspended_rayjob_that_nobody_but_us_starts_again(
    launcher: KubernetesLauncher, api: ApiStandIn
) -> None:
    await launcher.submit(RUN, 1)
    job = api.objects[RAYJOBS, job_name(RUN, 1)]
    assert job["spec"]["entrypoint"] == f"python -m services.trainer.job --run-id {RUN} --attempt 1"
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["suspend"] is True and job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    assert job["metadata"]["annotations"]["sqlclimb.io/run-id"] == RUN
    assert await launcher.state(RUN, 1) is JobState.ALIVE
    assert await launcher.version() == "kubernetes v1.33.1"


async def test_a_submit_sent_twice_or_whose_answer_is_lost_starts_one_job(
    launcher: KubernetesLauncher, api: ApiStandIn
) -> None:
    api.lost_answers = 1
    await launcher.submit(RUN, 1)
    await launcher.submit(RUN, 1)
    await asyncio.gather(*(launcher.submit(RUN, 1) for _ in range(8)))
    assert api.created == [job_name(RUN, 1)]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, JobState.ALIVE),
        ({"jobDeploymentStatus": "Initializing"}, JobState.ALIVE),
        ({"jobDeploymentStatus": "Suspended"}, JobState.ALIVE),  # waits for Kueue, or was preempted by it
        ({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, JobState.ALIVE),
        ({"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}, JobState.ENDED),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, JobState.ENDED),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, JobState.STOPPED),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed"}, JobState.FAILED),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING"}, JobState.FAILED),  # its head was lost
        ({"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING", "reason": "DeadlineExceeded"}, JobState.STOPPED),
        ({"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}, JobState.STOPPED),
        ({"jobDeploymentStatus": "ValidationFailed"}, JobState.FAILED),
    ],
)
def test_what_kuberay_says_is_read(status: dict[str, Any], state: JobState) -> None:
    assert job_state({"metadata": {}, "status": status}) is state


async def test_a_run_is_watched_from_its_creation_to_its_end(launcher: KubernetesLauncher, api: ApiStandIn) -> None:
    await launcher.submit(RUN, 1)
    for deployment, job, state in (
        ("Initializing", "", JobState.ALIVE),
        ("Running", "RUNNING", JobState.ALIVE),
        ("Complete", "SUCCEEDED", JobState.ENDED),
    ):
        api.set_status("rayjobs", job_name(RUN, 1), jobDeploymentStatus=deployment, jobStatus=job)
        assert await launcher.state(RUN, 1) is state
    assert api.created == [job_name(RUN, 1)]


@pytest.mark.parametrize("status", [409, 410, 429, 500])
async def test_an_answer_that_tells_nothing_is_no_end_of_a_run(
    launcher: KubernetesLauncher, api: ApiStandIn, status: int
) -> None:
    """Nothing is watched, so nothing expires; a look that fails is not a job that failed."""
    await launcher.submit(RUN, 1)
    api.answers = [("GET", status, "too old resource version")]
    with pytest.raises(LauncherUnavailable, match="too old"):
        await launcher.state(RUN, 1)
    assert await launcher.state(RUN, 1) is JobState.ALIVE


async def test_a_lost_head_is_a_failure_with_its_words(launcher: KubernetesLauncher, api: ApiStandIn) -> None:
    await launcher.submit(RUN, 1)
    start_pods(api, job_name(RUN, 1))
    words = "head pod was deleted, see postgresql://sqlclimb:secret@database/x"
    status = {"jobDeploymentStatus": "Failed", "reason": "JobStatusCheckTimeoutExceeded", "message": words}
    api.set_status("rayjobs", job_name(RUN, 1), jobStatus="RUNNING", **status)
    assert await launcher.state(RUN, 1) is JobState.FAILED
    tail = await launcher.log_tail(RUN, 1)
    assert "head pod was deleted" in tail and "secret" not in tail


async def test_a_preempted_run_is_alive_and_starts_no_other(launcher: KubernetesLauncher, api: ApiStandIn) -> None:
    await launcher.submit(RUN, 1)
    start_pods(api, job_name(RUN, 1))
    for pod in api.names("pods"):
        api.remove("api/v1/pods", pod)
    api.set_status("rayjobs", job_name(RUN, 1), jobDeploymentStatus="Suspended", jobStatus="")
    assert await launcher.state(RUN, 1) is JobState.ALIVE
    await launcher.submit(RUN, 1)
    assert api.names("rayjobs") == [job_name(RUN, 1)]


async def test_a_stop_waits_for_the_last_pod(launcher: KubernetesLauncher, api: ApiStandIn) -> None:
    await launcher.submit(RUN, 1)
    start_pods(api, job_name(RUN, 1))
    api.lingering = True
    stopping = asyncio.create_task(launcher.stop(RUN, 1))
    await asyncio.sleep(1.2)
    assert not stopping.done(), "its Pods still run"
    api.finish_deletions()
    await asyncio.wait_for(stopping, 10)
    assert api.objects == {}
    assert await launcher.state(RUN, 1) is JobState.MISSING
    await launcher.stop(RUN, 1)  # of what is gone: no error


async def test_a_stop_that_never_comes_true_is_told(
    launcher: KubernetesLauncher, api: ApiStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_rayjob, "STOP_SECONDS", 1.0)
    await launcher.submit(RUN, 1)
    api.lingering = True
    with pytest.raises(LauncherUnavailable, match="does not end RayJob"):
        await launcher.stop(RUN, 1)


async def test_a_new_attempt_removes_the_old_ones_and_no_other_runs(
    launcher: KubernetesLauncher, api: ApiStandIn
) -> None:
    await launcher.submit("other", 1)
    for attempt in (1, 2, 3):
        await launcher.submit(RUN, attempt)
    assert set(api.names("rayjobs")) == {job_name("other", 1), job_name(RUN, 3)}


@pytest.mark.parametrize("seconds", [1.0, pytest.param(30.0, marks=pytest.mark.slow)])
async def test_an_api_that_is_away_delays_a_submit_and_says_nothing_of_a_job(
    launcher: KubernetesLauncher, api: ApiStandIn, seconds: float
) -> None:
    api.is_down = True
    with pytest.raises(LauncherUnavailable, match="does not answer"):
        await launcher.state(RUN, 1)
    asyncio.get_running_loop().call_later(seconds, lambda: setattr(api, "is_down", False))
    await launcher.submit(RUN, 1)
    assert api.created == [job_name(RUN, 1)]


async def test_what_the_api_refuses_is_told_at_once(launcher: KubernetesLauncher, api: ApiStandIn) -> None:
    api.answers = [("POST", 403, "rayjobs is forbidden")]
    with pytest.raises(LauncherUnavailable, match="rayjobs is forbidden"):
        await asyncio.wait_for(launcher.submit(RUN, 1), 5)
    assert api.names("rayjobs") == []


identifiers = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._@-]{0,127}\Z")


@given(identifiers, identifiers, st.integers(1, 9999), st.integers(1, 9999))
def test_a_name_is_a_dns_label_and_nobody_elses(run: str, other: str, attempt: int, later: int) -> None:
    name = job_name(run, attempt)
    assert len(name) <= 45 and name.strip("-") == name and name.replace("-", "").isalnum() and name == name.lower()
    assert (job_name(other, later) == name) == ((other, later) == (run, attempt))


def test_a_template_that_is_no_rayjob_is_refused(client: KubernetesApi, tmp_path: Path) -> None:
    faulty: Manifest = {"spec": {}}
    (tmp_path / "rayjob.json").write_text(json.dumps(faulty))
    with pytest.raises(ValueError, match="SQLCLIMB_RAYJOB_TEMPLATE="):
        KubernetesLauncher(client, tmp_path / "rayjob.json")
