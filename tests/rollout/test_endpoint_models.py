"""Samplings of models that somebody else serves: same ledger, same verdicts, no ids, and a key that is nowhere."""

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Iterator

import psycopg
import pytest

from services.rollout.worker.endpoint_models import MAXIMUM_IDLE, EndpointModels
from shared.clients.base import ServiceProblem
from shared.contracts.measuring import BandRequest, DeltaRequest, DeltaVerdict
from shared.contracts.rollout import (
    EndpointApi,
    Message,
    ModelEndpoint,
    Regime,
    SamplingParameters,
    SamplingRequest,
    SamplingState,
)
from shared.contracts.tasks import Split
from shared.contracts.verifier import Status
from shared.egress import EgressRule
from tests.rollout.conftest import Coordinator, StartCoordinator
from tests.rollout.providers import KEY, REPLY_TOKENS, Providers, providers_app
from tests.rollout.scripted import Script
from tests.rollout.test_completion import group
from tests.rollout.test_samplings import K, all_rows, assert_each_once, ended, request, until
from tests.serving import served


@pytest.fixture
def providers() -> Providers:
    return Providers()


@pytest.fixture
def url(providers: Providers) -> Iterator[str]:
    with served(providers_app(providers)) as url:
        yield url


def endpoint(url: str, api: EndpointApi = EndpointApi.OPENAI, **changes: object) -> ModelEndpoint:
    suffix = "/v1" if api is EndpointApi.OPENAI else ""
    fields = {"url": url + suffix, "model": "big/model-1", "api": api, "with_key": True, "concurrency": 4}
    return ModelEndpoint(**{**fields, **changes})


@pytest.mark.parametrize("api", EndpointApi)
async def test_every_reply_lands_with_a_verdict_and_the_key_is_nowhere(
    coordinator: Coordinator,
    script: Script,
    providers: Providers,
    url: str,
    api: EndpointApi,
    control_db: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with coordinator.client() as client:
        await client.start(request("elsewhere", endpoint=endpoint(url, api)), KEY)
        done = await ended(client, "elsewhere")
        assert done.state is SamplingState.DONE, done.error
        rows = await all_rows(client, "elsewhere")
        line = (await client.report("elsewhere")).lines[0]
        await client.start(request("here"))
        await ended(client, "here")
        delta = await client.delta(DeltaRequest(before=["here"], after=["elsewhere"]))
    named = (done.request.policy, done.policy_name, done.adapter_digest)
    assert named == ("endpoint:big/model-1", "big/model-1", "endpoint")
    assert_each_once(rows)
    right = {task.id: int(task.question.split()[-2]) for task in script.tasks}
    for task_id in {row.task_id for row in rows}:
        assert sum(row.status is Status.MATCH for row in rows if row.task_id == task_id) == right[task_id]
    assert {(tuple(row.token_ids), tuple(row.logprobs), row.reported_tokens) for row in rows} == {
        ((), (), REPLY_TOKENS)
    }
    assert line.median_tokens == REPLY_TOKENS
    assert delta.verdict is DeltaVerdict.NO_CHANGE_DETECTED  # comparable: same prompt, budget and verifier
    with psycopg.connect(control_db) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'rollout'").fetchall()
        stored = "".join(
            str(connection.execute(f"SELECT t::text FROM rollout.{name} t").fetchall()) for (name,) in tables
        )
    assert "big/model-1" in stored
    assert KEY not in stored + caplog.text + "".join(row.model_dump_json() for row in rows)
    asked = providers.asked[0]
    assert (asked["temperature"], asked["top_p"]) == (0.7, 0.95)
    assert asked["max_completion_tokens" if api is EndpointApi.OPENAI else "max_tokens"] == 64


async def test_an_endpoint_that_draws_one_reply_a_request_is_asked_again(
    coordinator: Coordinator, providers: Providers, url: str
) -> None:
    async with coordinator.client() as client:
        for name, most, refuses in (("ignores", 1, False), ("refuses", 64, True)):
            providers.most_choices, providers.refuses_several = most, refuses
            await client.start(request(name, endpoint=endpoint(url, model=name)), KEY)
            done = await ended(client, name)
            assert_each_once(await all_rows(client, name))
            assert (done.progress.rerolled, done.progress.lost) == (0, {})


async def test_a_model_with_a_fixed_temperature_is_sampled_at_1_and_at_nothing_else(
    coordinator: Coordinator, providers: Providers, url: str
) -> None:
    providers.refuses_drawing = True
    at_1 = SamplingParameters(k=K, max_tokens=64, temperature=1.0, top_p=1.0)
    async with coordinator.client() as client:
        await client.start(request("at-1", endpoint=endpoint(url, model="one"), parameters=at_1), KEY)
        assert (await ended(client, "at-1")).state is SamplingState.DONE
        assert_each_once(await all_rows(client, "at-1"))
        await client.start(request("elsewhere", endpoint=endpoint(url, model="other")), KEY)
        assert "temperature is fixed" in (await ended(client, "elsewhere")).error


async def test_what_had_come_stays_when_a_later_request_of_the_group_is_refused(
    coordinator: Coordinator, providers: Providers, url: str
) -> None:
    providers.most_choices = 1
    providers.faults.extend([0, 400])
    async with coordinator.client() as client:
        await client.start(request("elsewhere", endpoint=endpoint(url), limit=1), KEY)
        done = await ended(client, "elsewhere")
        rows = await all_rows(client, "elsewhere")
    assert (done.state, done.progress.lost) == (SamplingState.DONE, {"engine_refused": 1})
    assert sorted(row.sample_index for row in rows) == [0, 1, 2]


async def test_a_passing_fault_costs_nothing(coordinator: Coordinator, providers: Providers, url: str) -> None:
    providers.faults.extend([500, 429, 503])
    async with coordinator.client() as client:
        await client.start(request("elsewhere", endpoint=endpoint(url)), KEY)
        done = await ended(client, "elsewhere")
        assert_each_once(await all_rows(client, "elsewhere"))
    assert (done.state, done.progress.lost) == (SamplingState.DONE, {})


async def test_what_cannot_be_mended_ends_it_with_the_reason_and_without_the_key(
    coordinator: Coordinator, providers: Providers, url: str
) -> None:
    cases: list[tuple[str, str, int | str, str]] = [
        ("wrong-key", "sk-wrong-key", 0, "the API key is missing, wrong, or may not use"),
        ("page", KEY, "html", "is the URL the API's own"),
        ("unknown", KEY, 404, "no model 'big/model-1' there"),
        ("bad", KEY, 400, "scripted for [API key]"),
    ]
    async with coordinator.client() as client:
        for name, key, fault, said in cases:
            providers.faults = deque([fault] * 99)
            await client.start(request(name, endpoint=endpoint(url)), key)
            failed = await ended(client, name)
            assert (failed.state, said in failed.error, key in failed.error) == (SamplingState.FAILED, True, False), (
                failed
            )
        providers.faults.clear()
        providers.reply_tokens = 65
        await client.start(request("ignores-the-budget", endpoint=endpoint(url)), KEY)
        assert "it ignores the limit" in (await ended(client, "ignores-the-budget")).error


async def test_a_coordinator_that_starts_again_waits_for_the_key_and_goes_on_with_it(
    start_coordinator: StartCoordinator, providers: Providers, url: str
) -> None:
    asked = request("elsewhere", endpoint=endpoint(url))
    providers.hold = threading.Event()
    with start_coordinator() as first:
        async with first.client() as client:
            await client.start(asked, KEY)
    providers.hold.set()
    with start_coordinator() as second:
        async with second.client() as client:
            paused = await until(client, "elsewhere", SamplingState.PAUSED)
            assert "is not known any more" in paused.error
            await client.start(asked, KEY)
            assert (await ended(client, "elsewhere")).state is SamplingState.DONE
            assert_each_once(await all_rows(client, "elsewhere"))


async def test_no_band_is_cut_on_a_model_elsewhere(coordinator: Coordinator, url: str) -> None:
    async with coordinator.client() as client:
        await client.start(request("elsewhere", endpoint=endpoint(url), split=Split.TRAIN), KEY)
        await ended(client, "elsewhere")
        with pytest.raises(ServiceProblem, match="cannot be trained here"):
            await client.cut_band(BandRequest(band_id="b", sampling_id="elsewhere"))


async def test_a_key_too_few_or_too_many_is_refused_before_anything_starts(coordinator: Coordinator, url: str) -> None:
    async with coordinator.client() as client:
        with pytest.raises(ServiceProblem, match="send the API key"):
            await client.start(request("one", endpoint=endpoint(url)))
        with pytest.raises(ServiceProblem, match="does not announce"):
            await client.start(request("one"), KEY)
        assert (await client.samplings()).samplings == []


def test_an_address_with_a_password_and_a_policy_beside_an_endpoint_are_refused() -> None:
    with pytest.raises(ValueError, match=r"endpoint\.url"):
        request(endpoint={"url": "http://me:secret@host/v1", "model": "m"})
    with pytest.raises(ValueError, match="exclude each other"):
        request(endpoint={"url": "http://host/v1", "model": "m"}, policy="base")
    with pytest.raises(ValueError, match="no effect at an endpoint"):
        request(endpoint={"url": "http://host/v1", "model": "m"}, regime=Regime(thinking=True))
    stored = request(endpoint={"url": "http://host/v1", "model": "m"})
    assert SamplingRequest.model_validate_json(stored.model_dump_json()) == stored


async def test_a_worker_keeps_few_idle_clients_and_the_keys_they_hold(providers: Providers, url: str) -> None:
    models = EndpointModels(EgressRule((url,), "SQLCLIMB_ENDPOINTS_ALLOWED"))
    asked = dataclasses.replace(group(), messages=(Message(role="user", content="2 right"),), api_key=KEY)
    for number in range(MAXIMUM_IDLE + 3):
        found, failed = await models.generate(asked, endpoint(url, model=f"model-{number}"))
        assert failed is None and {choice.reply for choice in found.values()} == {"SELECT 1"}
        providers.replies.clear()
    assert [named.model for named, _ in models._lines] == [f"model-{number}" for number in range(3, MAXIMUM_IDLE + 3)]
    await models.close()
