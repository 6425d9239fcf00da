"""Two real engines behind one gateway: prompts stay where they are cached; a killed one never serves what it lacks."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from shared.clients.base import ServiceProblem
from shared.contracts.inference import (
    ADAPTER_DIGEST_HEADER,
    AdapterState,
    ReplicaState,
)
from tests.inference.conftest import started_engine, started_gateway
from tests.inference.support import VOCABULARY, Gateway, Service, mean_gap, prompt_logprobs, publication, sequences
from tests.models import token_logprobs

pytestmark = pytest.mark.slow

GROUPS = 8
GROUP = 16
PROMPT_TOKENS = 1000
LOAD = 8
"""Callers at a time while an engine is killed."""


@dataclass(frozen=True)
class Pair:
    """A gateway and its two engines."""

    gateway: Gateway
    engines: tuple[Service, Service]

    async def listed(self, engine: Service) -> set[str]:
        """What an engine serves; nothing when it is away."""
        try:
            async with httpx.AsyncClient(base_url=engine.url, timeout=10.0) as http:
                return {model["id"] for model in (await http.get("/v1/models")).json()["data"]}
        except (httpx.TransportError, KeyError):
            return set()

    async def both_serve(self) -> None:
        """Wait until both engines take requests."""
        async with asyncio.timeout(200), self.gateway.client() as client:
            while True:
                found = (await client.pressure()).replicas
                if all(status.state is ReplicaState.SERVING for status in found):
                    return
                await asyncio.sleep(0.2)

    def processes(self, engine: Service) -> list[psutil.Process]:
        """An engine's vLLM server, and below it its core."""
        assert engine.process is not None
        return psutil.Process(engine.process.pid).children(recursive=True)


@pytest.fixture(scope="module")
def pair(base_model: Path, control_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two engines of the tiny model, ready."""
    folder = tmp_path_factory.mktemp("pair")
    for name in ("one", "two", "gateway"):
        (folder / name).mkdir()
    with (
        started_engine(base_model, folder / "one") as one,
        started_engine(base_model, folder / "two") as two,
        started_gateway([one, two], base_model, control_cluster, folder / "gateway") as gateway,
    ):
        one.wait_ready()
        two.wait_ready()
        gateway.service.wait_ready()
        yield Pair(gateway, (one, two))


async def cache_counts(engine: Service) -> tuple[float, float]:
    """Prompt tokens asked of the prefix cache, and found there."""
    async with httpx.AsyncClient(base_url=engine.url) as http:
        lines = (await http.get("/metrics")).text.splitlines()
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    asked, found = (sum(float(line.split()[-1]) for line in lines if line.startswith(name)) for name in names)
    return asked, found


async def hit_rate(urls: list[str], engines: tuple[Service, ...], token: str, seed: int) -> float:
    """Of GROUPS groups of GROUP separate requests, each group at once: the share of prompt tokens found in a cache.

    Requests go to the addresses in turn.
    """
    draw = random.Random(seed)
    prompts = [[draw.randrange(3, VOCABULARY) for _ in range(PROMPT_TOKENS)] for _ in range(GROUPS)]
    before = [await cache_counts(engine) for engine in engines]
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=120.0) as http:
        for prompt in prompts:
            body = {"model": "base", "prompt": prompt, "max_tokens": 4, "temperature": 1.0, "ignore_eos": True}
            asked = [http.post(f"{urls[at % len(urls)]}/v1/completions", json=body) for at in range(GROUP)]
            assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
    after = [await cache_counts(engine) for engine in engines]
    queries = sum(new[0] - old[0] for old, new in zip(before, after, strict=True))
    hits = sum(new[1] - old[1] for old, new in zip(before, after, strict=True))
    assert queries == GROUPS * GROUP * PROMPT_TOKENS
    return hits / queries


async def test_groups_of_separate_requests_hit_the_prefix_cache_as_on_one_replica(pair: Pair) -> None:
    one, two = pair.engines
    token = pair.gateway.token()
    single = await hit_rate([one.url], (one,), token, seed=1)
    ours = await hit_rate([pair.gateway.url], pair.engines, token, seed=2)
    turns = await hit_rate([one.url, two.url], pair.engines, token, seed=3)
    print(f"\nprefix-cache hit rate: one replica {single:.3f}, gateway over two {ours:.3f}, in turns {turns:.3f}")
    assert ours >= 0.9 * single
    used = [await cache_counts(engine) for engine in pair.engines]
    assert all(asked > GROUP * PROMPT_TOKENS for asked, _ in used)  # and both worked


async def test_replica_killed_during_a_publish_and_under_load_never_serves_what_it_lacks(pair: Pair) -> None:
    gateway = pair.gateway
    names = []
    async with gateway.client() as client:
        for step in (1, 2):
            name, request = publication(gateway, gateway.adapter(seed=40 + step), "pair", step)
            assert (await client.publish(name, request)).state is AdapterState.READY
            names.append((name, request.digest, gateway.adapter(seed=40 + step)))
    third, third_request = publication(gateway, gateway.adapter(seed=43), "pair", 3)

    answers: Counter[int] = Counter()
    false_ready: list[str] = []
    done = asyncio.Event()
    prompt = sequences(count=1, length=30, seed=7)[0]
    truth = {name: token_logprobs(gateway.model, [prompt], folder)[0] for name, _, folder in names}

    async def ask(number: int) -> None:
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 1.0, "prompt_logprobs": 0}
        async with gateway.http() as http:
            while not done.is_set():
                name, digest, _ = names[number % 2]
                answer = await http.post("/v1/completions", json=body | {"model": name})
                answers[answer.status_code] += 1
                assert answer.status_code == 200, answer.text
                assert answer.headers[ADAPTER_DIGEST_HEADER] == digest
                assert mean_gap(prompt_logprobs(answer.json()["choices"][0]), truth[name]) < 1e-3

    async def look() -> None:
        """While the newest adapter reads ready, both engines have it."""
        async with gateway.http() as http:
            while not done.is_set():
                found = await http.get(f"/v1/adapters/{third}")
                if found.status_code == 200 and found.json()["state"] == AdapterState.READY:
                    lists = await asyncio.gather(*(pair.listed(engine) for engine in pair.engines))
                    false_ready.extend(
                        engine.url for engine, names in zip(pair.engines, lists, strict=True) if third not in names
                    )
                await asyncio.sleep(0.02)

    loads = [asyncio.create_task(ask(number)) for number in range(LOAD)]
    looking = asyncio.create_task(look())
    victim = pair.engines[1]
    server = pair.processes(victim)[0]
    async with gateway.client() as client:
        publishing = asyncio.create_task(client.publish(third, third_request))
        await asyncio.sleep(0.02)  # its files are being fetched or it is being loaded
        server.kill()
        with pytest.raises(ServiceProblem) as caught:
            await publishing
        assert caught.value.problem.status == 503
        assert (await client.adapter(third)).state is not AdapterState.READY
        assert third not in await pair.listed(pair.engines[0])  # what had been loaded was unloaded

        await pair.both_serve()  # its supervisor starts it again
        assert {name for name, _, _ in names} <= await pair.listed(victim)
        assert (await client.publish(third, third_request)).state is AdapterState.READY
        assert third in await pair.listed(pair.engines[0]) & await pair.listed(victim)
    done.set()
    await asyncio.gather(*loads, looking)
    print(f"\nanswers while one of two engines was killed and came back: {dict(answers)}")
    assert false_ready == []
    assert answers[200] > 100


async def test_requests_of_an_engine_whose_core_dies_are_answered_by_the_other(pair: Pair) -> None:
    await pair.both_serve()
    answers: Counter[int] = Counter()
    done = asyncio.Event()

    async def ask(number: int) -> None:
        body = {"model": "base", "max_tokens": 40, "temperature": 1.0, "ignore_eos": True}
        draw = random.Random(number)
        async with pair.gateway.http() as http:
            while not done.is_set():
                prompt = [draw.randrange(3, VOCABULARY) for _ in range(20)]
                answers[(await http.post("/v1/completions", json=body | {"prompt": prompt})).status_code] += 1

    loads = [asyncio.create_task(ask(number)) for number in range(LOAD)]
    core = next(process for process in pair.processes(pair.engines[0]) if "EngineCor" in process.name())
    async with asyncio.timeout(60):
        while answers[200] < 2 * LOAD:  # noqa: ASYNC110  # what the callers count
            await asyncio.sleep(0.05)
    core.kill()
    await asyncio.to_thread(psutil.wait_procs, [core], 10.0)
    async with pair.gateway.client() as client:
        async with asyncio.timeout(60):
            while (await client.pressure()).serving == 2:  # noqa: ASYNC110  # another process's
                await asyncio.sleep(0.1)
    await pair.both_serve()
    done.set()
    await asyncio.gather(*loads)
    print(f"\nanswers while one engine's core was killed and came back: {dict(answers)}")
    assert set(answers) == {200}
