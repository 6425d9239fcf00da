"""The Pod driver against an API stand-in whose kubelet runs real Postgres: no Pod leaks, none is used twice."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from services.verifier.execution import Limits
from services.verifier.sandbox.pod import PodDriver
from services.verifier.sandbox.protocol import BundleFaulty, Role, SandboxFailed
from services.verifier.sandboxes import RunningSandbox
from shared.domain import Bundle, DomainSettings
from shared.kubernetes import KubernetesApi
from tests.deploy.helm import render
from tests.deploy.kubernetes_api import ApiStandIn, KubeletStandIn
from tests.deploy.manifests import embedded

OWNER = ("verifier-0", "3f0c1a52-0000-4000-8000-000000000001")
LIMITS = Limits(rows=100, bytes=100_000)
BUNDLE = Bundle(
    DomainSettings(name="pets"),
    "CREATE TABLE pets (name text, age integer);",
    "INSERT INTO pets VALUES ('Ada', 3), ('Bo', 5);",
    variants={"old": "INSERT INTO pets VALUES ('Cy', 30);"},
)


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """The base template, baked as the image's build bakes it."""
    folder = Path("/dev/shm") / f"sqlclimb-pods-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    folder.mkdir(mode=0o755)
    argv = [sys.executable, "-m", "services.verifier.sandbox.pod_server", "--bake", str(folder / "base")]
    subprocess.run(argv, check=True, timeout=120)
    for path in [folder / "base", *(folder / "base").rglob("*")]:
        os.chown(path, os.geteuid(), os.getegid())
    yield folder / "base"
    shutil.rmtree(folder)


@pytest.fixture
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Pod that the chart gives to the verifier."""
    (pod,) = [made for made in embedded(render("8xh100")) if made["kind"] == "Pod"]
    del pod["metadata"]["name"]
    path = tmp_path_factory.mktemp("template") / "pod.json"
    path.write_text(json.dumps(pod))
    return path


@pytest.fixture
def api() -> Iterator[ApiStandIn]:
    stand_in = ApiStandIn()
    yield stand_in
    stand_in.close()


@pytest.fixture
def kubelet(api: ApiStandIn, base: Path) -> Iterator[KubeletStandIn]:
    folder = base.parent / uuid.uuid4().hex[:6]
    folder.mkdir(mode=0o755)
    stand_in = KubeletStandIn(api, folder, base)
    yield stand_in
    stand_in.close()


@pytest.fixture
def driver(api: ApiStandIn, kubelet: KubeletStandIn, template: Path) -> Iterator[PodDriver]:
    opened = PodDriver(KubernetesApi(api.url, "team"), template, OWNER)
    yield opened
    opened.close()
    assert api.names("pods") == [], "a closed driver left Pods"


def within(seconds: float, condition: object) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def test_a_sandbox_is_a_pod_with_the_bundles_seeds_that_only_its_password_opens(
    driver: PodDriver, api: ApiStandIn
) -> None:
    sandbox = RunningSandbox("one", "run", BUNDLE, driver)
    sandbox.start()
    assert sandbox.run(Role.CANDIDATE, "main", "SELECT sum(age) FROM pets", LIMITS).texts == [("8",)]
    assert sandbox.run(Role.GOLD, "old", "SELECT name FROM pets", LIMITS).texts == [("Cy",)]
    assert driver.isolation == "pod" and driver.postgres_version.startswith("18.")
    (name,) = api.names("pods")
    pod = api.objects["api/v1/pods", name]
    assert pod["metadata"]["ownerReferences"][0]["uid"] == OWNER[1]
    address = pod["status"]["podIP"]
    for role in (*Role, "owner"):
        for password in (None, "", "guess"):
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(host=address, user=str(role), dbname="seed_0", password=password, connect_timeout=5)
    sandbox.close()
    assert api.names("pods") == []


@pytest.mark.slow
def test_an_evicted_pod_is_nobodys_wrong_answer_and_is_replaced(
    driver: PodDriver, api: ApiStandIn, kubelet: KubeletStandIn
) -> None:
    sandbox = RunningSandbox("one", "run", BUNDLE, driver)
    sandbox.start()
    (first,) = api.names("pods")
    kubelet.kill(first)
    api.set_status("pods", first, phase="Failed", reason="Evicted")
    outcome = sandbox.run(Role.CANDIDATE, "main", "SELECT count(*) FROM pets", LIMITS)
    assert outcome.failure is None and outcome.texts == [("2",)]
    (second,) = api.names("pods")
    assert second != first
    sandbox.close()


@pytest.mark.slow
def test_a_pod_that_vanishes_is_noticed_without_a_statement(driver: PodDriver, api: ApiStandIn) -> None:
    cluster = driver.start(BUNDLE)
    assert cluster.alive()
    api.remove("api/v1/pods", cluster.name)
    within(10, lambda: not cluster.alive())
    cluster.stop()
    cluster.stop()


def test_a_verifier_that_was_killed_leaves_nothing_to_its_successor(
    driver: PodDriver, api: ApiStandIn, template: Path
) -> None:
    """The killed one's Pods are swept by the next process of the same Pod; another verifier's are left alone."""
    other = PodDriver(KubernetesApi(api.url, "team"), template, ("verifier-1", str(uuid.uuid4())))
    theirs = other.start(BUNDLE)
    killed = driver.start(BUNDLE)
    successor = PodDriver(KubernetesApi(api.url, "team"), template, OWNER)
    assert api.names("pods") == [theirs.name]
    assert killed.name in api.created
    successor.close()
    other.close()


@pytest.mark.slow
def test_sandboxes_end_with_the_verifiers_own_pod(driver: PodDriver, api: ApiStandIn) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": OWNER[0]},
        "spec": {"containers": [{"name": "verifier", "image": "verifier:1"}]},
    }
    api.on_create = lambda resource, manifest: None
    api.put("api/v1/pods", pod)["metadata"]["uid"] = OWNER[1]
    api.objects["api/v1/pods", "sandbox-left"] = {
        "metadata": {
            "name": "sandbox-left",
            "uid": "x",
            "ownerReferences": driver._manifest("x", "y")["metadata"]["ownerReferences"],
        }
    }
    api.remove("api/v1/pods", OWNER[0])
    assert api.names("pods") == []


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, 30.0])
def test_an_api_that_is_away_delays_a_start_and_loses_no_deletion(
    driver: PodDriver, api: ApiStandIn, seconds: float
) -> None:
    first = driver.start(BUNDLE)
    api.is_down = True
    first.stop()
    back = threading.Timer(seconds, lambda: setattr(api, "is_down", False))
    back.start()
    assert api.names("pods") == [first.name], "the deletion could not have arrived"
    second = driver.start(BUNDLE)
    back.join()
    within(10, lambda: api.names("pods") == [second.name])
    within(10, lambda: driver.obstacle() == "")
    assert second.alive()


@pytest.mark.slow
def test_a_lost_answer_makes_no_second_pod(driver: PodDriver, api: ApiStandIn) -> None:
    api.lost_answers = 1
    cluster = driver.start(BUNDLE)
    assert api.created == api.names("pods") == [cluster.name]


@pytest.mark.slow
@pytest.mark.parametrize("status", [410, 429, 500])
def test_a_list_that_fails_ends_no_sandbox_and_is_asked_again(driver: PodDriver, api: ApiStandIn, status: int) -> None:
    cluster = driver.start(BUNDLE)
    api.answers = [("GET", status, "too old resource version")]
    within(10, lambda: driver.obstacle())
    assert cluster.alive() and "too old" in driver.obstacle()
    within(10, lambda: driver.obstacle() == "")
    assert cluster.alive() and api.names("pods") == [cluster.name]


@pytest.mark.slow
def test_a_conflicting_deletion_is_tried_again_until_the_pod_is_gone(driver: PodDriver, api: ApiStandIn) -> None:
    cluster = driver.start(BUNDLE)
    api.answers = [("DELETE", 409, "the object has been modified")]
    cluster.stop()
    within(10, lambda: api.names("pods") == [])


@pytest.mark.slow
def test_a_refusal_is_told_at_once_and_leaves_nothing(driver: PodDriver, api: ApiStandIn) -> None:
    api.answers = [("POST", 403, "exceeded quota: pods=20")]
    started = time.monotonic()
    with pytest.raises(SandboxFailed, match="exceeded quota"):
        driver.start(BUNDLE)
    assert time.monotonic() - started < 5
    assert api.names("pods") == []


@pytest.mark.slow
def test_an_image_that_cannot_be_pulled_is_named(driver: PodDriver, api: ApiStandIn, kubelet: KubeletStandIn) -> None:
    kubelet.waiting = "ImagePullBackOff"
    with pytest.raises(SandboxFailed, match="ImagePullBackOff: back-off pulling image"):
        driver.start(BUNDLE)
    assert api.names("pods") == []


@pytest.mark.parametrize(
    ("schema", "postgres", "complaint"),
    [
        ("CREATE EXTENSION postgis;", 18, 'extension "postgis" is not available'),
        ("CREATE TABLE t (x unknown_type);", None, 'type "unknown_type" does not exist'),
        ("CREATE TABLE t (x int);", 16, "asks for Postgres 16; this sandbox runs 18"),
    ],
)
def test_a_faulty_bundle_is_refused_and_leaves_nothing(
    driver: PodDriver, api: ApiStandIn, schema: str, postgres: int | None, complaint: str
) -> None:
    with pytest.raises(BundleFaulty, match=complaint):
        driver.start(Bundle(DomainSettings(name="faulty", postgres=postgres), schema, ""))
    assert api.names("pods") == []


def test_a_template_that_is_no_pod_is_refused(api: ApiStandIn, tmp_path: Path) -> None:
    (tmp_path / "pod.json").write_text("{}")
    client = KubernetesApi(api.url, "team")
    with pytest.raises(ValueError, match="SQLCLIMB_POD_TEMPLATE="):
        PodDriver(client, tmp_path / "pod.json", OWNER)
    client.close()
