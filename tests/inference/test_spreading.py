"""The gateway in front of two engines that fail as told: where requests go, and what their callers read."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from services.inference.gateway.discovery import Discovery
from services.inference.gateway.fleet import Fleet, Limits
from services.inference.gateway.proxy import MAXIMUM_BODY_BYTES
from shared.contracts.inference import GROUP_HEADER, Pressure, ReplicaState
from tests.inference.conftest import started_gateway
from tests.inference.scripted_engine import METRICS, Script, ScriptedEngine
from tests.inference.support import Gateway, Service

BODY = {"model": "base", "prompt": "how many orders", "max_tokens": 8}
FULL = 4
"""Sequences that one engine is given."""


@dataclass(frozen=True)
class Pair:
    """A gateway, its two engines and a caller."""

    gateway: Gateway
    engines: tuple[ScriptedEngine, ScriptedEngine]
    http: httpx.AsyncClient

    def at_home(self, body: dict[str, object]) -> ScriptedEngine:
        """The engine that has just been asked this."""
        (found,) = [engine for engine in self.engines if body in engine.asked]
        return found

    async def pressure(self) -> Pressure:
        """As the gateway tells it."""
        return Pressure.model_validate_json((await self.http.get("/v1/pressure")).content)

    async def until(self, condition: Callable[[Pressure], bool]) -> Pressure:
        """The first pressure that is so."""
        async with asyncio.timeout(10):
            while True:
                found = await self.pressure()
                if condition(found):
                    return found
                await asyncio.sleep(0.02)

    async def metric(self, line: str) -> float:
        """One line's value; 0 while it is not there."""
        lines = (await self.http.get("/metrics")).text.splitlines()
        return sum(float(found.rsplit(" ", 1)[1]) for found in lines if found.startswith(line + " "))


@pytest.fixture(scope="module")
def running(
    control_cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gateway, tuple[ScriptedEngine, ScriptedEngine]]]:
    """A real gateway process over two scripted engines."""
    folder = tmp_path_factory.mktemp("spreading")
    with ScriptedEngine() as one, ScriptedEngine() as two:
        services = [Service("", engine.url, "", {}, folder) for engine in (one, two)]
        settings = {"max_in_flight": str(FULL), "affinity_spill": "2"}
        with started_gateway(services, Path("model"), control_cluster, folder, **settings) as gateway:
            gateway.service.wait_ready()
            yield gateway, (one, two)


@pytest.fixture
async def pair(running: tuple[Gateway, tuple[ScriptedEngine, ScriptedEngine]]) -> AsyncIterator[Pair]:
    """Both engines well and serving."""
    gateway, engines = running
    async with gateway.http() as http:
        pair = Pair(gateway, engines, http)
        for engine in engines:
            engine.release()
        await pair.until(lambda found: found.serving == 2)
        for engine in engines:
            engine.asked.clear()
        yield pair


async def test_requests_of_one_prompt_or_group_stay_together_and_prompts_spread(pair: Pair) -> None:
    prompts = 32  # where each goes hangs on the engines' ports: once in 2^31 all go to one
    for number in range(prompts):
        for _ in range(3):
            await pair.http.post("/v1/completions", json=BODY | {"prompt": f"question {number}"})
    asked = [[body["prompt"] for body in engine.asked] for engine in pair.engines]
    assert all(asked) and sum(map(len, asked)) == 3 * prompts
    assert not set(asked[0]) & set(asked[1])

    for engine in pair.engines:
        engine.asked.clear()
    for number in range(8):
        await pair.http.post("/v1/completions", json=BODY | {"prompt": f"{number}"}, headers={GROUP_HEADER: "g1"})
    assert sorted(len(engine.asked) for engine in pair.engines) == [0, 8]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("script", [Script.DIE, Script.DIE_AFTER_HEADERS, Script.ERROR])
async def test_request_whose_engine_dies_before_the_first_token_is_answered_by_the_other(
    pair: Pair, script: Script, stream: bool
) -> None:
    body = BODY | {"stream": stream}
    await pair.http.post("/v1/completions", json=body)
    home = pair.at_home(body)
    home.script = script
    retries = await pair.metric("sqlclimb_generation_retries_total")
    answer = await pair.http.post("/v1/completions", json=body)
    assert (answer.status_code, "SELECT" in answer.text) == (200, True)
    assert all(body in engine.asked for engine in pair.engines)
    assert await pair.metric("sqlclimb_generation_retries_total") == retries + 1


async def test_answer_in_one_piece_that_is_cut_is_asked_again(pair: Pair) -> None:
    await pair.http.post("/v1/completions", json=BODY)
    pair.at_home(BODY).script = Script.CUT
    assert (await pair.http.post("/v1/completions", json=BODY)).json()["choices"][0]["text"] == "SELECT 1"


async def test_stream_that_is_cut_later_ends_with_an_error_and_is_not_asked_again(pair: Pair) -> None:
    body = BODY | {"stream": True}
    for engine in pair.engines:
        engine.script = Script.CUT
    answer = await pair.http.post("/v1/completions", json=body)
    assert answer.status_code == 200
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[0] == {"choices": [{"text": "SELECT"}]}
    assert events[-1]["error"]["status"] == 503
    assert "the reply was cut" in events[-1]["error"]["detail"]
    assert sum(len(engine.asked) for engine in pair.engines) == 1


async def test_engines_own_error_reaches_the_caller_when_all_have_it(pair: Pair) -> None:
    for engine in pair.engines:
        engine.script = Script.ERROR
    answer = await pair.http.post("/v1/completions", json=BODY)
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "EngineCore encountered an issue"


async def test_request_is_a_problem_when_every_engine_dies(pair: Pair) -> None:
    for engine in pair.engines:
        engine.script = Script.DIE
    answer = await pair.http.post("/v1/completions", json=BODY)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert "Nothing was generated" in answer.json()["detail"]


async def test_error_that_an_engine_ended_with_reaches_people_and_callers(pair: Pair) -> None:
    for engine in pair.engines:
        engine.script = Script.DOWN
    found = await pair.until(lambda found: found.serving == 0)
    assert [status.state for status in found.replicas] == [ReplicaState.AWAY] * 2
    assert all("ValueError: max_model_len" in status.reason for status in found.replicas)
    answer = await pair.http.post("/v1/completions", json=BODY)
    assert answer.status_code == 503
    assert "ValueError: max_model_len" in answer.json()["detail"]
    ready = (await pair.http.get("/readyz")).json()
    assert "ValueError: max_model_len" in ready["checks"]["engine"]


async def test_full_engines_spill_then_answer_429_until_one_is_free(pair: Pair) -> None:
    for engine in pair.engines:
        engine.hold()
    refused = await pair.metric('sqlclimb_generation_refusals_total{reason="saturated"}')
    spills = await pair.metric("sqlclimb_affinity_spills_total")
    asking = [asyncio.create_task(pair.http.post("/v1/completions", json=BODY | {"n": 2})) for _ in range(4)]
    await pair.until(lambda found: sum(status.in_flight for status in found.replicas) == 2 * FULL)
    assert await pair.metric("sqlclimb_affinity_spills_total") > spills

    answer = await pair.http.post("/v1/completions", json=BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert "SQLCLIMB_MAX_IN_FLIGHT" in answer.json()["detail"]
    assert await pair.metric('sqlclimb_generation_refusals_total{reason="saturated"}') == refused + 1

    for engine in pair.engines:
        engine.release()
    assert {held.status_code for held in await asyncio.gather(*asking)} == {200}
    assert (await pair.http.post("/v1/completions", json=BODY)).status_code == 200
    large = await pair.http.post("/v1/completions", json=BODY | {"n": 10 * FULL})
    assert large.status_code == 200  # an idle engine takes what fits nowhere else


async def test_pressure_and_engines_metrics_are_readable_through_the_gateway(pair: Pair) -> None:
    found = await pair.until(lambda found: found.waiting == 10)
    assert (found.serving, found.running, found.waiting, found.kv_use) == (2, 6, 10, 0.25)
    (status, _) = found.replicas
    assert (status.state, status.limit, status.in_flight) == (ReplicaState.SERVING, FULL, 0)
    metrics = await pair.http.get(f"/v1/replicas/{status.replica}/metrics")
    assert metrics.text == METRICS
    assert metrics.headers["content-type"].startswith("text/plain")
    unknown = await pair.http.get("/v1/replicas/169.254.169.254:80/metrics")
    assert unknown.status_code == 404
    ours = (await pair.http.get("/metrics")).text
    assert f'sqlclimb_replica_generated_tokens{{replica="{status.replica}"}} 70.0' in ours
    assert f'sqlclimb_replica_waiting{{replica="{status.replica}"}} 5.0' in ours
    assert f'sqlclimb_replica_state{{replica="{status.replica}",state="serving"}} 1.0' in ours


async def test_tokens_and_times_are_counted(pair: Pair) -> None:
    names = (
        'sqlclimb_generated_tokens_total{policy="base"}',
        "sqlclimb_generation_seconds_count",
        "sqlclimb_first_token_seconds_count",
    )
    before = [await pair.metric(name) for name in names]
    await pair.http.post("/v1/completions", json=BODY)
    await pair.http.post("/v1/completions", json=BODY | {"stream": True})  # tells no usage
    after = [await pair.metric(name) for name in names]
    assert [new - old for new, old in zip(after, before, strict=True)] == [7, 2, 1]


async def test_huge_body_is_refused(pair: Pair) -> None:
    answer = await pair.http.post("/v1/completions", content=b"x" * (MAXIMUM_BODY_BYTES + 1))
    assert answer.status_code == 413
    assert sum(len(engine.asked) for engine in pair.engines) == 0


async def test_replica_that_discovery_drops_ends_its_requests_and_gets_no_new_ones() -> None:
    with ScriptedEngine() as one, ScriptedEngine() as two:
        fleet = Fleet("base", 1e-4, Limits(in_flight=512, spill=0))
        await fleet.join([one.url, two.url])
        assert len(await fleet.refresh([])) == 2
        leaver = next(replica for replica in fleet.replicas if replica.url == two.url)
        with leaver.busy(3):
            await fleet.join([one.url])
            chosen = {fleet.choose("base", f"key {number}", 1) for number in range(20)}
            assert {replica.url for replica in chosen if replica} == {one.url}
            assert [status.state for status in fleet.pressure().replicas] == ["serving", "leaving"]
        await fleet.join([one.url])
        assert [status.state for status in fleet.pressure().replicas] == ["serving"]
        await fleet.join([one.url, two.url])
        assert [status.state for status in fleet.pressure().replicas] == ["serving", "away"]
        await fleet.close()


async def test_every_address_of_a_name_is_a_replica_and_a_dns_outage_loses_none() -> None:
    found = await Discovery([], "http://localhost:8000").find()
    assert "http://127.0.0.1:8000" in found
    lost = Discovery(["http://a:1"], "http://nowhere.invalid:8000")
    assert await lost.find() == ["http://a:1"]
