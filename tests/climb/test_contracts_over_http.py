"""Design section 6 on every service of a running stack."""

import httpx
import pytest

from cli.stack.programs import SERVICES
from shared.contracts.base import Problem
from tests.stack import StackHandle

TYPOS = {
    "verifier": ("POST", "/v1/sandboxes", {"run_id": "x", "domian": "shop"}, "domian"),
    "author": ("POST", "/v1/authorings", {"authoring_id": "x", "domain": "shop", "gold": 3}, "gold"),
    "inference": ("PUT", "/v1/adapters/run-s1-01234567", {"url": "file:///x"}, "url"),
    "rollout": ("POST", "/v1/samplings", {"sampling_id": "x", "domain": "shop", "polcy": "base"}, "polcy"),
    "trainer": ("POST", "/v1/runs", {"run_id": "x", "confg": {}}, "confg"),
}


@pytest.fixture
def urls(stack: StackHandle) -> dict[str, str]:
    return stack.urls


@pytest.mark.parametrize("service", SERVICES)
def test_health_readiness_metrics_and_openapi_need_no_token(urls: dict[str, str], service: str) -> None:
    assert httpx.get(f"{urls[service]}/healthz").json() == {"status": "ok", "service": service}
    ready = httpx.get(f"{urls[service]}/readyz")
    assert ready.status_code == 200, ready.text
    assert ready.json()["ready"] is True
    assert "sqlclimb_http_requests_total" in httpx.get(f"{urls[service]}/metrics").text
    document = httpx.get(f"{urls[service]}/openapi.json").json()
    assert TYPOS[service][1].replace("run-s1-01234567", "{name}") in document["paths"]


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}])
def test_a_missing_or_wrong_token_is_401(urls: dict[str, str], service: str, headers: dict[str, str]) -> None:
    method, path, body, _ = TYPOS[service]
    answer = httpx.request(method, urls[service] + path, json=body, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("service", SERVICES)
def test_a_typo_in_a_body_is_422_and_named(stack: StackHandle, urls: dict[str, str], service: str) -> None:
    method, path, body, typo = TYPOS[service]
    headers = {"authorization": f"Bearer {stack.token('admin')}"}
    answer = httpx.request(method, urls[service] + path, json=body, headers=headers)
    assert answer.status_code == 422, answer.text
    problem = Problem.model_validate_json(answer.content)
    assert typo in [fault.field for fault in problem.errors]


def test_the_trainers_token_cannot_see_golds(stack: StackHandle, urls: dict[str, str]) -> None:
    headers = {"authorization": f"Bearer {stack.token('trainer')}"}
    refused = httpx.get(f"{urls['author']}/v1/domains/shop/tasks?privileged=true", headers=headers)
    assert refused.status_code == 403
    shown = httpx.get(f"{urls['author']}/v1/domains/shop/tasks", headers=headers).json()["tasks"]
    assert shown
    assert not [task for task in shown if "privileged" in task]
