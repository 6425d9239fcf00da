"""Engine and gateway killed and restarted: ready adapters are proven again before they serve."""

import asyncio
import signal

import psutil

from shared.contracts.inference import ADAPTER_DIGEST_HEADER, AdapterState
from tests.inference.support import Gateway, publication

BODY = {"prompt": [5, 6, 7, 8, 9], "max_tokens": 8, "temperature": 0, "ignore_eos": True}


async def test_adapter_survives_the_gateways_end_and_the_engines(gateway: Gateway) -> None:
    name, request = publication(gateway, gateway.adapter(seed=31), "survivor")
    async with gateway.client() as client:
        await client.publish(name, request)
    async with gateway.http() as http:
        before = await http.post("/v1/completions", json=BODY | {"model": name})
        assert before.status_code == 200

    gateway.service.signal_group(signal.SIGKILL)
    gateway.service.start()
    await asyncio.to_thread(gateway.service.wait_ready)
    async with gateway.http() as http:
        assert (await http.get(f"/v1/adapters/{name}")).json()["state"] == AdapterState.READY
        after = await http.post("/v1/completions", json=BODY | {"model": name})
        assert after.json()["choices"][0]["text"] == before.json()["choices"][0]["text"]

    assert gateway.engine.process is not None
    supervisor = psutil.Process(gateway.engine.process.pid)
    below = supervisor.children(recursive=True)
    assert len(below) >= 2  # vLLM's server and its core
    supervisor.kill()  # alone: neither may outlive it
    await asyncio.to_thread(gateway.engine.process.wait)
    async with gateway.http() as http:
        for model in ("base", name):
            down = await http.post("/v1/completions", json=BODY | {"model": model})
            assert down.status_code == 503
            assert down.headers["content-type"] == "application/problem+json"
            assert "does not answer" in down.json()["detail"]
        ready = await http.get("/readyz")
        assert ready.status_code == 503
        assert name in ready.json()["checks"]["adapters"]
    _, left = await asyncio.to_thread(psutil.wait_procs, below, 30.0)
    assert left == []

    gateway.engine.start()
    await asyncio.to_thread(gateway.engine.wait_ready)
    async with gateway.http() as http:
        restored = await http.post("/v1/completions", json=BODY | {"model": name})  # at once: restored on demand
        assert restored.status_code == 200, restored.text
        assert restored.headers[ADAPTER_DIGEST_HEADER] == request.digest
        assert restored.json()["choices"][0]["text"] == before.json()["choices"][0]["text"]
    await asyncio.to_thread(gateway.service.wait_ready)  # the other tests' adapters too
