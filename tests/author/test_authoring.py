"""The author as a process, over HTTP, with a real verifier and control database."""

import json
import shutil
from functools import partial
from pathlib import Path

import httpx
import pytest

from shared.clients.base import ServiceProblem
from shared.contracts.author import Authoring, AuthoringRequest, AuthoringState
from shared.contracts.tasks import PrivilegedTask, Split
from tests.author.conftest import SHOP, ServiceProcess, awaited, call, finished


def _request(name: str, golds: int = 100, seed: int = 0) -> AuthoringRequest:
    return AuthoringRequest(authoring_id=name, domain="shop", seed=seed, golds=golds)


@pytest.fixture(scope="session")
def done(standing_author: ServiceProcess) -> Authoring:
    """A finished authoring of the standing author."""
    return finished(standing_author, _request("a-1"))


def test_an_authoring_yields_tasks_of_every_archetype_and_its_counts_add_up(
    standing_author: ServiceProcess, done: Authoring
) -> None:
    assert done.state is AuthoringState.DONE, done.error
    assert done.result is not None
    assert done.result.proposed == 300
    assert done.result.kept + sum(done.result.rejected.values()) == 300
    tasks = call(standing_author, lambda client: client.tasks("shop", privileged=True))
    assert done.result.kept == len(tasks.tasks) == done.kept > 250
    assert len(done.result.matrix) == 10
    holdout = call(standing_author, lambda client: client.tasks("shop", split=Split.HOLDOUT))
    assert tasks.digest == holdout.digest == done.task_set_digest
    assert len(holdout.tasks) == done.result.holdout_tasks
    assert all(isinstance(task, PrivilegedTask) for task in tasks.tasks)
    splits_of_gold: dict[str, set[Split]] = {}
    for task in tasks.tasks:
        splits_of_gold.setdefault(task.provenance.gold_key, set()).add(task.split)
    assert all(len(splits) == 1 for splits in splits_of_gold.values())


def test_references_are_absent_unless_asked_for_with_the_gold_scope(
    standing_author: ServiceProcess, done: Authoring
) -> None:
    url = f"{standing_author.url}/v1/domains/{done.domain}/tasks"
    user = {"authorization": f"Bearer {standing_author.token('user')}"}
    plain = httpx.get(url, headers=user)
    assert plain.status_code == 200
    assert plain.json()["tasks"]
    assert "privileged" not in plain.text
    assert "SELECT" not in plain.text
    assert httpx.get(url, headers=user, params={"privileged": True}).status_code == 403
    rollout = {"authorization": f"Bearer {standing_author.token('rollout')}"}
    assert "privileged" not in httpx.get(url, headers=rollout).text
    assert "SELECT" in httpx.get(url, headers=rollout, params={"privileged": True}).text
    assert "SELECT" not in standing_author.log.read_text()


def test_a_killed_authoring_posted_again_ends_as_an_unkilled_one(author: ServiceProcess) -> None:
    whole = finished(author, _request("whole", golds=480))
    call(author, lambda client: client.start(_request("killed", golds=480)))
    awaited(author, "killed", lambda authoring: authoring.proposed > 0)
    author.kill()
    author.start()
    interrupted = call(author, lambda client: client.authoring("killed"))
    assert interrupted.state is AuthoringState.FAILED
    assert "interrupted" in interrupted.error
    assert 0 < interrupted.proposed < 1440
    resumed = finished(author, _request("killed", golds=480))
    assert resumed.state is AuthoringState.DONE, resumed.error
    assert resumed.task_set_digest == whole.task_set_digest
    assert resumed.result == whole.result


def test_the_same_post_again_is_the_same_authoring_and_another_one_is_refused(
    standing_author: ServiceProcess, done: Authoring
) -> None:
    assert call(standing_author, lambda client: client.start(_request("a-1"))) == done
    with pytest.raises(ServiceProblem, match="seed") as refused:
        call(standing_author, lambda client: client.start(_request("a-1", seed=1)))
    assert refused.value.problem.status == 409


def test_a_failed_authoring_says_why_and_what_to_do(author: ServiceProcess, tmp_path: Path) -> None:
    author.stop()
    bundles = tmp_path / "domains"
    shutil.copytree(SHOP, bundles / "shop")
    with (bundles / "shop" / "notes.md").open("a") as notes:
        notes.write("\nA note the verifier has not read.\n")
    author.settings["DOMAINS"] = json.dumps([str(bundles)])
    author.start()
    failed = finished(author, _request("a-1", golds=20))
    assert failed.state is AuthoringState.FAILED
    assert "another version of 'shop'" in failed.error
    assert "post the same authoring again" in failed.error
    shutil.copytree(SHOP, bundles / "shop", dirs_exist_ok=True)
    with pytest.raises(ServiceProblem, match="has changed since"):
        call(author, lambda client: client.start(_request("a-1", golds=20)))


def test_every_call_wants_its_scope_and_names_what_is_wrong_with_a_body(standing_author: ServiceProcess) -> None:
    url, body = standing_author.url, {"authoring_id": "a-2", "domain": "shop"}
    asked = {name: {"authorization": f"Bearer {standing_author.token(name)}"} for name in ("author", "rollout")}
    calls = [("POST", "/v1/authorings"), ("GET", "/v1/authorings/a-2"), ("GET", "/v1/domains/shop/tasks")]
    for method, path in calls:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = httpx.request(method, url + path, headers=headers, json=body)
            assert answer.status_code == 401, (method, path, answer.text)
    for method, path in calls[:2]:
        assert httpx.request(method, url + path, headers=asked["rollout"], json=body).status_code == 403
    post = partial(httpx.post, f"{url}/v1/authorings", headers=asked["author"])
    typo = post(json={**body, "gold": 7})
    assert typo.status_code == 422
    assert typo.headers["content-type"] == "application/problem+json"
    assert typo.json()["errors"][0]["field"] == "gold"
    unknown_teacher = post(json={**body, "teacher": "oracle"})
    assert unknown_teacher.status_code == 422
    assert unknown_teacher.json()["errors"][0]["field"] == "teacher"
    assert post(json={**body, "domain": "nowhere"}).status_code == 404
    assert httpx.get(f"{url}/v1/authorings/none", headers=asked["author"]).status_code == 404
    assert httpx.get(f"{url}/v1/domains/nowhere/tasks", headers=asked["rollout"]).status_code == 404
