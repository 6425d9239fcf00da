"""The HTTP edge: tokens, faulty bodies, identities of sandboxes."""

import subprocess
import sys

import httpx
import pytest

from shared.clients.base import ServiceProblem
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import BundleSource, SandboxRequest
from tests.verifier.conftest import VerifierProcess
from tests.verifier.store import GOLD, MAIN, SCHEMA, sandbox_request, verify_sql

CALLS = [
    ("POST", "/v1/sandboxes"),
    ("DELETE", "/v1/sandboxes/x"),
    ("POST", "/v1/sandboxes/x/verify"),
    ("POST", "/v1/sandboxes/x/execute"),
    ("POST", "/v1/sandboxes/x/explain"),
]


@pytest.mark.parametrize("method, path", CALLS)
def test_every_call_needs_the_gold_scope(verifier: VerifierProcess, method: str, path: str) -> None:
    with httpx.Client(base_url=verifier.url) as http:
        assert http.request(method, path, json={}).status_code == 401
        sampler = {"authorization": f"Bearer {verifier.token('sampler')}"}
        refused = http.request(method, path, json={}, headers=sampler)
        assert refused.status_code == 403
        assert refused.headers["content-type"] == "application/problem+json"


def test_health_readiness_and_openapi_need_no_token(verifier: VerifierProcess) -> None:
    with httpx.Client(base_url=verifier.url) as http:
        assert http.get("/healthz").json()["status"] == "ok"
        ready = http.get("/readyz").json()
        assert ready["ready"] is True
        assert ready["versions"]["postgres"].startswith("18.")
        assert ready["versions"]["isolation"] in ("bubblewrap", "process")
        assert "/v1/sandboxes/{sandbox_id}/verify" in http.get("/openapi.json").json()["paths"]


def test_a_typo_is_named(verifier: VerifierProcess) -> None:
    headers = {"authorization": f"Bearer {verifier.token()}"}
    with httpx.Client(base_url=verifier.url, headers=headers) as http:
        body = {"items": [{"sql": "SELECT 1", "golds": "SELECT 1"}]}
        problem = http.post("/v1/sandboxes/x/verify", json=body).json()
    assert problem["status"] == 422
    assert {fault["field"] for fault in problem["errors"]} == {"items.0.gold", "items.0.golds"}


async def test_an_unknown_sandbox_is_404_and_may_be_deleted(client: VerifierClient) -> None:
    with pytest.raises(ServiceProblem) as caught:
        await client.verify("nobody", verify_sql(GOLD, GOLD))
    assert caught.value.problem.status == 404
    assert "create it again" in caught.value.problem.detail
    await client.delete_sandbox("nobody")


async def test_the_same_id_is_the_same_sandbox_and_another_bundle_a_conflict(client: VerifierClient) -> None:
    first = await client.create_sandbox(sandbox_request("twice"))
    assert first == await client.create_sandbox(sandbox_request("twice"))
    assert first.seeds == ["main", "fewer", "no-books"]
    with pytest.raises(ServiceProblem) as caught:
        await client.create_sandbox(sandbox_request("twice", BundleSource(name="bookstore", schema_sql=SCHEMA)))
    assert caught.value.problem.status == 409
    await client.delete_sandbox("twice")
    with pytest.raises(ServiceProblem):
        await client.verify("twice", verify_sql(GOLD, GOLD))


async def test_a_bundle_whose_seed_fails_is_named(client: VerifierClient) -> None:
    bundle = BundleSource(name="faulty", schema_sql=SCHEMA, seed_sql=MAIN, variants={"bad": "INSERT INTO nowhere"})
    with pytest.raises(ServiceProblem) as caught:
        await client.create_sandbox(sandbox_request("faulty", bundle))
    assert caught.value.problem.status == 422
    assert "seed `bad` does not load" in caught.value.problem.detail


async def test_an_unknown_domain_lists_the_known_ones(client: VerifierClient) -> None:
    with pytest.raises(ServiceProblem) as caught:
        await client.create_sandbox(SandboxRequest(run_id="tests", domain="atlantis"))
    assert caught.value.problem.status == 422
    assert "atlantis" in caught.value.problem.detail


def test_faulty_settings_exit_2_and_name_the_field(verifier: VerifierProcess) -> None:
    program = [sys.executable, "-m", "services.verifier"]
    environment = {"PATH": "/usr/bin:/bin", "SQLCLIMB_TOKENS_FILE": str(verifier.tokens_file), "SQLCLIMB_PORT": "1"}
    missing = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert "SQLCLIMB_SANDBOXES" in missing.stderr
    environment["SQLCLIMB_SANDBOXES"] = "/tmp/" + "x" * 80
    long = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert long.returncode == 2
    assert "too long for Unix sockets" in long.stderr
    environment["SQLCLIMB_SANDBOXES"] = str(verifier.folder / "sandboxes")
    taken = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert taken.returncode == 2
    assert "in use by another verifier" in taken.stderr
