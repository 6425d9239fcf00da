"""Generation through the gateway: what a caller of vLLM would get, under the right weights, or a problem."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from shared.contracts.inference import ADAPTER_DIGEST_HEADER, SERVED_MODEL_HEADER
from tests.inference.support import SLOTS, Gateway, publication, sequences

CHAT = {"model": "base", "messages": [{"role": "user", "content": "how many orders per country"}], "max_tokens": 12}


async def test_chat_with_ids_and_logprobs_equals_the_engines_own_answer(gateway: Gateway) -> None:
    body = CHAT | {"temperature": 1.0, "seed": 3, "n": 2, "logprobs": True, "return_token_ids": True}
    async with gateway.http() as http, httpx.AsyncClient(base_url=gateway.engine.url, timeout=60.0) as direct:
        through = await http.post("/v1/chat/completions", json=body)
        plain = await direct.post("/v1/chat/completions", json=body)
    assert through.status_code == plain.status_code == 200
    ours, theirs = through.json(), plain.json()
    assert ours["prompt_token_ids"] == theirs["prompt_token_ids"]
    for one, other in zip(ours["choices"], theirs["choices"], strict=True):
        assert (one["message"], one["token_ids"]) == (other["message"], other["token_ids"])
        assert len(one["logprobs"]["content"]) == len(one["token_ids"])
        for mine, its in zip(one["logprobs"]["content"], other["logprobs"]["content"], strict=True):
            assert mine["logprob"] == pytest.approx(its["logprob"], abs=1e-4)
    assert (through.headers[SERVED_MODEL_HEADER], through.headers[ADAPTER_DIGEST_HEADER]) == ("base", "base")


async def test_streaming_streams(gateway: Gateway) -> None:
    body = CHAT | {"stream": True, "max_tokens": 150, "ignore_eos": True}
    async with gateway.http() as http, http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers[ADAPTER_DIGEST_HEADER] == "base"
        reads = [part async for part in answer.aiter_raw()]
    assert b"[DONE]" not in reads[0]  # else it would be a buffered answer
    assert b"".join(reads).rstrip().endswith(b"data: [DONE]")


async def test_unknown_model_never_falls_through_to_base(gateway: Gateway) -> None:
    async with gateway.http() as http:
        answer = await http.post("/v1/chat/completions", json=CHAT | {"model": "night-s3-01234567"})
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert "night-s3-01234567" in answer.json()["detail"]
        unnamed = await http.post("/v1/completions", json={"prompt": "select", "max_tokens": 1})
        assert unnamed.status_code == 422
        assert unnamed.json()["errors"][0]["field"] == "model"


async def test_engine_error_reaches_the_caller_as_it_is(gateway: Gateway) -> None:
    async with gateway.http() as http:
        answer = await http.post("/v1/chat/completions", json=CHAT | {"max_tokens": -3})
    assert answer.status_code == 400
    assert "max_tokens" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/v1/adapters"),
        ("GET", "/v1/adapters/x"),
        ("PUT", "/v1/adapters/x"),
        ("DELETE", "/v1/adapters/x"),
    ],
)
async def test_every_call_needs_a_known_token(gateway: Gateway, method: str, path: str) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, headers={"authorization": "Bearer wrong"}) as http:
        answer = await http.request(method, path, json={})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


async def test_sampling_token_may_not_publish(gateway: Gateway) -> None:
    name, request = publication(gateway, gateway.adapter(seed=1), "forbidden")
    async with gateway.http("rollout") as http:
        put = await http.put(f"/v1/adapters/{name}", content=request.model_dump_json())
        assert (await http.get("/v1/models")).status_code == 200
    assert put.status_code == 403


async def test_base_and_adapters_in_one_batch_answer_as_themselves(gateway: Gateway) -> None:
    """Stock vLLM on a CPU answers base as the last slot's adapter here, and `prompt_logprobs` ends its engine."""
    names = ["base"]
    prompts = sequences(count=6, length=20, seed=5)
    body = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": 0, "prompt_logprobs": 0}
    async with gateway.client() as client, gateway.http() as http:
        for step in range(1, SLOTS + 1):  # every slot is taken
            name, request = publication(gateway, gateway.adapter(seed=20 + step), "mixed", step)
            await client.publish(name, request)
            names.append(name)

        async def logprobs(model: str, prompt: list[int]) -> list[float]:
            answer = await http.post("/v1/completions", json=body | {"model": model, "prompt": prompt})
            assert answer.status_code == 200, answer.text
            assert answer.headers[SERVED_MODEL_HEADER] == answer.json()["model"] == model
            found: list[float] = answer.json()["choices"][0]["logprobs"]["token_logprobs"]
            return found

        asked = [(name, prompt) for prompt in prompts for name in names]
        alone = [await logprobs(name, prompt) for name, prompt in asked]
        together = await asyncio.gather(*(logprobs(name, prompt) for name, prompt in asked))
    for before, after in zip(alone, together, strict=True):
        assert after == pytest.approx(before, abs=1e-4)
    assert alone[0] != pytest.approx(alone[1], abs=0.05)  # the policies do differ


async def test_caller_that_hangs_up_ends_the_engines_work(gateway: Gateway) -> None:
    async def running() -> float:
        async with httpx.AsyncClient(base_url=gateway.engine.url) as engine:
            lines = (await engine.get("/metrics")).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))

    body = CHAT | {"max_tokens": 2000, "ignore_eos": True}
    async with gateway.http() as http:
        asking = asyncio.create_task(http.post("/v1/chat/completions", json=body))
        await poll(running, wanted=True, seconds=20)
        asking.cancel()
        await poll(running, wanted=False, seconds=5)  # to its end it would take 2,000 tokens


async def poll(question: Callable[[], Awaitable[float]], wanted: bool, seconds: float) -> None:
    """Ask until the answer is (or is not) zero."""
    async with asyncio.timeout(seconds):
        while True:
            if bool(await question()) == wanted:
                return


async def test_readiness_says_what_the_engine_runs(gateway: Gateway) -> None:
    async with gateway.client() as client:
        ready = await client.readiness()
    assert ready.checks == {"database": "ok", "engine": "ok", "adapters": "ok"}
    assert ready.versions["vllm"].startswith("0.")
    assert ready.versions["model"] == str(gateway.model)
    async with gateway.http() as http:
        metrics = (await http.get("/metrics")).text
        generated = await http.post("/v1/completions", json={"model": "base", "prompt": [5], "max_tokens": 1})
        after = (await http.get("/metrics")).text
    line = 'sqlclimb_generations_total{policy="base",status="200"}'
    count = [float(text.split(line)[1].split()[0]) if line in text else 0.0 for text in (metrics, after)]
    assert generated.status_code == 200
    assert count[1] == count[0] + 1
