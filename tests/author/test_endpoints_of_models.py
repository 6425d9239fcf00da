"""The official SDKs against a local server that speaks both wire formats: what goes well and what does not."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from services.author.teachers import Teachers
from services.author.teachers.base import TeacherError
from services.author.teachers.endpoint import Completion, ModelEndpoint, Outcome
from services.author.teachers.prompt import Prompt
from services.author.teachers.settings import TeacherSettings
from tests.author.model_server import Answer, Fault, ModelServer

WORDS = json.dumps({"proposals": [{"questions": [{"style": "plain", "question": "?"}], "sql": "SELECT 1"}]}) * 20
PROMPT = Prompt("You write questions. " * 50, "Write exactly 3 proposals.", structured=True)
MODELS = {"anthropic": "claude-sonnet-5-5", "openai": "big"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(lambda asked: Answer(WORDS)) as running:
        yield running


def settings(url: str, key: str = "sk-right", **more: object) -> TeacherSettings:
    return TeacherSettings.model_validate(
        {
            "anthropic_api_key": key,
            "anthropic_base_url": url,
            "openai_api_key": key,
            "openai_base_url": f"{url}/v1",
            "anthropic_calls_per_minute": 0,
            "teacher_retries": 3,
            "teacher_stall_seconds": 60.0,
            **more,
        }
    )


def complete(found: TeacherSettings, teacher: str, model: str = "", prompt: Prompt = PROMPT) -> Completion:
    async def call() -> Completion:
        teachers = Teachers(found)
        endpoint: ModelEndpoint = teachers.endpoint(teacher, model or MODELS[teacher])
        try:
            return await endpoint.complete(prompt, "a:propose-00003", 1000, lambda text: None)
        finally:
            await teachers.close()

    return asyncio.run(call())


@pytest.mark.parametrize("teacher", MODELS)
def test_a_reply_arrives_whole_with_its_tokens_counted_once(server: ModelServer, teacher: str) -> None:
    found = complete(settings(server.url), teacher)
    assert (found.text, found.outcome) == (WORDS, Outcome.COMPLETE)
    cached, fresh = len(PROMPT.system) // 4, len(PROMPT.user) // 4
    assert (found.usage.input, found.usage.cache_read, found.usage.output) == (fresh, cached, len(WORDS) // 4)
    assert not found.usage.estimated
    [asked] = server.asked
    assert asked.key == "a:propose-00003"
    if teacher == "anthropic":
        assert asked.body["system"][0]["cache_control"] == {"type": "ephemeral"}
    else:
        assert asked.body["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("teacher", MODELS)
def test_overload_and_rate_limits_are_waited_out_as_the_server_says_and_billed_once(
    server: ModelServer, teacher: str
) -> None:
    server.faults.extend([Fault(429, "0.05"), Fault(529, "0.05"), Fault(503, "0.05")])
    assert complete(settings(server.url), teacher).text == WORDS
    assert server.billed.total() == 1


@pytest.mark.parametrize("teacher", MODELS)
@pytest.mark.parametrize("stalls", [True, False], ids=["silent", "broken off"])
def test_a_stream_that_ends_early_keeps_what_had_come_and_is_not_asked_again(
    server: ModelServer, teacher: str, stalls: bool
) -> None:
    server.faults.append(Fault(after=700, stalls=stalls))
    found = complete(settings(server.url, teacher_stall_seconds=2.0), teacher)
    assert (found.text, found.outcome) == (WORDS[:700], Outcome.CUT)
    assert found.usage.estimated
    assert found.usage.output >= 700 // 4
    assert server.billed.total() == 1


@pytest.mark.parametrize("teacher", MODELS)
@pytest.mark.parametrize(("stop", "outcome"), [("refusal", Outcome.REFUSAL), ("max_tokens", Outcome.LENGTH)])
def test_why_a_model_stopped_is_told(server: ModelServer, teacher: str, stop: str, outcome: Outcome) -> None:
    server.writer = lambda asked: Answer("no", stop)
    assert complete(settings(server.url), teacher).outcome is outcome


@pytest.mark.parametrize("teacher", MODELS)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(429, "0.01"), "limits the rate"),
        (Fault(529, "0.01"), "overloaded"),
        (Fault(400, message="prompt is too long"), "prompt is too long"),
    ],
    ids=["429", "529", "400"],
)
def test_what_does_not_pass_says_so(server: ModelServer, teacher: str, fault: Fault, words: str) -> None:
    server.faults.extend([fault] * 8)
    with pytest.raises(TeacherError, match=words):
        complete(settings(server.url), teacher)
    assert not server.billed


@pytest.mark.parametrize("teacher", MODELS)
def test_a_wrong_key_names_its_setting_and_is_not_repeated(server: ModelServer, teacher: str) -> None:
    with pytest.raises(TeacherError, match=f"SQLCLIMB_{teacher.upper()}_API_KEY") as refused:
        complete(settings(server.url, key="sk-wrong-secret"), teacher)
    assert "wrong-secret" not in str(refused.value)


@pytest.mark.parametrize("teacher", MODELS)
def test_an_unknown_model_and_a_dead_address_are_told_apart(server: ModelServer, teacher: str) -> None:
    with pytest.raises(TeacherError, match="no model 'none'"):
        complete(settings(server.url), teacher, model="none")
    with pytest.raises(TeacherError, match=f"SQLCLIMB_{teacher.upper()}_BASE_URL"):
        complete(settings("http://127.0.0.1:9", teacher_retries=0), teacher)


def test_an_endpoint_without_structured_output_is_asked_without_from_then_on(server: ModelServer) -> None:
    server.refuses_schemas = True
    assert complete(settings(server.url), "openai").text == WORDS
    assert "response_format" not in server.asked[0].body


def test_an_attempt_is_asked_without_a_schema(server: ModelServer) -> None:
    complete(settings(server.url), "openai", prompt=Prompt("system", "How many orders?"))
    assert "response_format" not in server.asked[0].body


def test_bedrock_is_asked_in_its_own_words(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BEDROCK_MANTLE_BASE_URL", server.url)
    found = complete(settings(server.url, anthropic_bedrock_region="eu-central-1"), "anthropic")
    assert found.text == WORDS


def test_keys_are_shown_nowhere(server: ModelServer) -> None:
    found = settings(server.url)
    assert isinstance(found.anthropic_api_key, SecretStr)
    assert "sk-right" not in repr(found)
