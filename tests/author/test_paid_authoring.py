"""Authorings with a model teacher as a user runs them: real services, and a local provider that keeps a bill."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.author.catalogue import Catalogue
from services.author.teachers.base import Assignment, Proposal
from services.author.teachers.grammar import GrammarTeacher
from shared.contracts.author import AuthoringRequest, AuthoringState
from shared.contracts.tasks import Archetype
from tests.author.conftest import ServiceProcess, awaited, call, finished
from tests.author.killing import kill_at_random
from tests.author.model_server import Answer, Asked, Knowing, ModelServer

pytestmark = pytest.mark.slow

PER_CALL = 4


@pytest.fixture(scope="session")
def known(catalogue: Catalogue) -> list[Proposal]:
    """What the stand-in knows: the grammar's proposals."""

    async def drawn() -> list[Proposal]:
        return [one async for one in GrammarTeacher().propose(Assignment(catalogue, 7, 300, 1))]

    return asyncio.run(drawn())


@pytest.fixture
def server(known: list[Proposal]) -> Iterator[ModelServer]:
    with ModelServer(Knowing(known, PER_CALL)) as running:
        yield running


@pytest.fixture
def paid(verifier: ServiceProcess, control_db: str, server: ModelServer, tmp_path: Path) -> Iterator[ServiceProcess]:
    """An author of one test, told of the stand-in."""
    services = {"DB": control_db, "VERIFIER_URL": verifier.url}
    running = ServiceProcess("author", verifier.tokens, tmp_path, services | teacher_settings(server.url))
    running.start()
    yield running
    running.stop()


def teacher_settings(url: str) -> dict[str, str]:
    """Settings of an author whose models are a stand-in's."""
    return {
        "ANTHROPIC_API_KEY": "sk-right",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_CALLS_PER_MINUTE": "0",
        "OPENAI_API_KEY": "sk-right",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_MODEL": "big",
        "TEACHER_RETRIES": "2",
    }


def request(name: str, **more: Any) -> AuthoringRequest:
    body = {
        "authoring_id": name,
        "domain": "shop",
        "teacher": "anthropic",
        "golds": 24,
        "phrasings": 1,
        "per_call": PER_CALL,
        "max_tokens": 1000,
    }
    return AuthoringRequest.model_validate({**body, **more})


def test_a_model_teaches_with_second_opinions_and_every_call_is_on_the_bill_once(
    paid: ServiceProcess, server: ModelServer, known: list[Proposal]
) -> None:
    wrong = known[5].phrasings[0].question
    right = server.writer

    def write(asked: Asked) -> Answer:
        return Answer("```sql\nSELECT 1 FROM orders\n```") if asked.user == wrong else right(asked)

    server.writer = write
    done = finished(paid, request("m-1"))
    assert done.state is AuthoringState.DONE, done.error
    assert done.result is not None
    assert done.result.proposed == 24
    assert done.result.kept + sum(done.result.rejected.values()) == 24
    assert done.result.rejected["second_opinion"] == 1
    assert done.model == "claude-sonnet-5-5"
    assert done.spending is not None
    assert done.spending.cost_usd is not None
    assert 0 < done.spending.cost_usd < 0.5
    assert sum(done.spending.calls.values()) == len(server.billed) == server.billed.total()
    assert done.spending.doubts == 0
    assert 0 < done.result.detectable_effect <= 1
    assert done.result.thin
    tasks = call(paid, lambda client: client.tasks("shop"))
    assert {task.provenance.teacher for task in tasks.tasks} == {"anthropic"}
    exported = httpx.get(f"{paid.url}/metrics").text
    assert 'sqlclimb_author_calls_total{model="claude-sonnet-5-5",outcome="complete",purpose="attempt"}' in exported
    assert 'sqlclimb_author_proposals_total{reason="second_opinion",teacher="anthropic"} 1.0' in exported
    seen = exported + paid.log.read_text()
    assert not [one for one in known if one.gold in seen or one.phrasings[0].question in seen]
    assert "sk-right" not in seen


def test_a_key_that_is_refused_and_a_budget_that_is_reached_say_what_to_do(
    paid: ServiceProcess, server: ModelServer
) -> None:
    server.key_expected = "sk-other"
    failed = finished(paid, request("m-2"))
    assert failed.state is AuthoringState.FAILED
    assert "SQLCLIMB_ANTHROPIC_API_KEY" in failed.error
    assert "sk-right" not in failed.error + paid.log.read_text()
    server.key_expected = "sk-right"
    stopped = finished(paid, request("m-2", max_cost_usd=0.04))
    assert stopped.state is AuthoringState.STOPPED
    assert "max_cost_usd" in stopped.error
    assert stopped.spending is not None
    assert stopped.spending.cost_usd is not None
    assert 0 < stopped.spending.cost_usd <= 0.04
    if stopped.result is not None:
        assert call(paid, lambda client: client.tasks("shop")).digest == stopped.task_set_digest
    done = finished(paid, request("m-2", max_cost_usd=5.0))
    assert done.state is AuthoringState.DONE, done.error
    assert done.result is not None
    assert done.result.proposed == 24
    assert server.billed.total() == len(server.billed)


def test_killed_twice_it_loses_nothing_and_owns_up_to_what_was_in_flight(
    paid: ServiceProcess, server: ModelServer
) -> None:
    server.piece_seconds = 0.05
    account = kill_at_random(paid, server, request("m-3", golds=80), kills=2, seed=1)
    assert account.done.state is AuthoringState.DONE, account.done.error
    assert (account.unanswered, account.unjudged, account.repeated) == ([], 0, 0)
    assert account.charged_twice() <= account.doubts <= 2 * 4
    assert account.done.spending is not None
    assert account.done.spending.doubts == account.doubts


def test_an_authoring_is_run_by_one_author_and_cancelled_through_any(
    paid: ServiceProcess, server: ModelServer, tmp_path: Path
) -> None:
    answering, right = threading.Event(), server.writer

    def write(asked: Asked) -> Answer:
        answering.wait(60)
        return right(asked)

    server.writer = write
    beside = tmp_path / "beside"
    beside.mkdir()
    other = ServiceProcess("author", paid.tokens, beside, paid.settings)
    call(paid, lambda client: client.start(request("m-4")))
    other.start()  # and does not take the other's work for a dead author's
    try:
        assert call(other, lambda client: client.authoring("m-4")).state is AuthoringState.RUNNING
        assert call(other, lambda client: client.start(request("m-4"))).state is AuthoringState.RUNNING
        awaited(paid, "m-4", lambda found: found.spending is not None and found.spending.calls == {"in_flight": 4})
        cancelled = call(other, lambda client: client.cancel("m-4"))
        assert cancelled.state is AuthoringState.CANCELLED
        assert "post the same authoring again" in cancelled.error
        done = awaited(paid, "m-4", lambda found: _resumed(other, found.state, answering))
        assert done.state is AuthoringState.DONE, done.error
    finally:
        other.stop()
    assert done.spending is not None
    assert done.spending.doubts == 4
    assert server.billed.total() - len(server.billed) <= 4, "the calls that were cut off, at most"


def _resumed(author: ServiceProcess, state: AuthoringState, answering: threading.Event) -> bool:
    """Posts it again until the author that was told to stop has let go of it; whether it is done."""
    if state is AuthoringState.CANCELLED:
        call(author, lambda client: client.start(request("m-4")))
    else:
        answering.set()
    return state is AuthoringState.DONE


def test_a_set_grows_by_what_is_aimed_at_and_keeps_what_it_had(standing_author: ServiceProcess) -> None:
    first = finished(standing_author, _grammar("g-1", only=["filter", "join"], golds=40))
    assert first.result is not None
    before = call(standing_author, lambda client: client.tasks("shop", privileged=True))
    grown = finished(standing_author, _grammar("g-2", only=["window"], golds=20, add=True))
    assert grown.state is AuthoringState.DONE, grown.error
    assert grown.result is not None
    after = call(standing_author, lambda client: client.tasks("shop", privileged=True))
    assert grown.result.carried == first.result.kept == len(before.tasks)
    assert grown.result.kept + sum(grown.result.rejected.values()) == grown.result.proposed + grown.result.carried
    assert {task.archetype for task in after.tasks} == {Archetype.FILTER, Archetype.JOIN, Archetype.WINDOW}
    origins = {task.id: task.provenance.authoring_id for task in after.tasks}
    lost = [task for task in before.tasks if task.id not in origins]
    assert len(lost) <= 2, "only what a new holdout question displaced"
    assert all(origins[task.id] == "g-1" for task in before.tasks if task.id in origins)
    assert call(standing_author, lambda client: client.tasks("shop")).digest == grown.task_set_digest


def _grammar(name: str, **more: Any) -> AuthoringRequest:
    return AuthoringRequest.model_validate({"authoring_id": name, "domain": "shop", "phrasings": 1, **more})


def test_what_an_author_cannot_do_is_refused_before_anything_is_stored(standing_author: ServiceProcess) -> None:
    headers = {"authorization": f"Bearer {standing_author.token('author')}"}
    for fault, field in (
        ({"teacher": "anthropic"}, "teacher"),
        ({"from_report": "s-1"}, "from_report"),
        ({"styles": ["rude"]}, "styles"),
    ):
        body = {"authoring_id": "never", "domain": "shop", **fault}
        answer = httpx.post(f"{standing_author.url}/v1/authorings", headers=headers, json=body)
        assert answer.status_code == 422, answer.text
        assert json.loads(answer.text)["errors"][0]["field"] == field
    assert httpx.get(f"{standing_author.url}/v1/authorings/never", headers=headers).status_code == 404
    assert httpx.delete(f"{standing_author.url}/v1/authorings/never", headers=headers).status_code == 404
    assert httpx.delete(f"{standing_author.url}/v1/authorings/never").status_code == 401
