"""Publishing adapters through the gateway to a real vLLM."""

import asyncio
import io
import json
import tarfile
from pathlib import Path

import httpx
import pytest

from shared.artifacts import adapter_digest
from shared.clients.base import ServiceProblem
from shared.contracts.inference import ADAPTER_DIGEST_HEADER, AdapterKind, AdapterRequest, AdapterState
from shared.ids import served_name
from tests.inference.bases import Base
from tests.inference.saved_layouts import split_layouts
from tests.inference.support import Gateway, mean_gap, probe_of, prompt_logprobs, publication, sequences
from tests.models import rename_tensors, token_logprobs


async def refusal(gateway: Gateway, name: str, request: AdapterRequest) -> str:
    """The reason a publish is refused for, after checking that nothing of it is left."""
    async with gateway.client() as client:
        with pytest.raises(ServiceProblem) as caught:
            await client.publish(name, request)
        assert caught.value.problem.status == 422
        assert name not in await gateway.engine_models()
        found = await client.adapter(name)
        assert found.state is AdapterState.REFUSED
        assert found.reason in caught.value.problem.detail
        with pytest.raises(ServiceProblem) as asked:
            await client.chat({"model": name, "messages": [{"role": "user", "content": "how many"}]}, 60.0)
        assert asked.value.problem.status == 409
    return found.reason


async def test_served_adapter_is_the_trained_one(gateway: Gateway) -> None:
    adapter = gateway.adapter(seed=1)
    name, request = publication(gateway, adapter, "trained")
    async with gateway.client() as client, gateway.http() as http:
        published = await client.publish(name, request)
        assert (published.state, published.tensors_placed, published.step) == (AdapterState.READY, 28, 1)
        assert published.probe is not None
        assert published.probe.served_minus_publisher <= 0.1 * published.probe.base_minus_publisher
        assert published.probe.tokens == 3 * 16

        unseen = sequences(count=4, length=30, seed=99)  # not the probe's own sequences
        body = {"model": name, "prompt": unseen, "max_tokens": 1, "prompt_logprobs": 0}
        answer = await http.post("/v1/completions", json=body)
        assert answer.headers[ADAPTER_DIGEST_HEADER] == request.digest
        served = [value for choice in answer.json()["choices"] for value in prompt_logprobs(choice)]
    peft = [value for values in token_logprobs(gateway.model, unseen, adapter) for value in values]
    base = [value for values in token_logprobs(gateway.model, unseen) for value in values]
    assert mean_gap(base, peft) > 0.1
    assert mean_gap(served, peft) <= 0.1 * mean_gap(base, peft)


async def test_adapter_saved_otherwise_is_served_as_trained(gateway: Gateway, tmp_path: Path) -> None:
    """A fast part of `test_adapter_matrix.py`."""
    wanted = ("PEFT on a wrapper, transformers 5", "adapter's name inside (default)", "fused qkv_proj, gate_up_proj")
    for layout in split_layouts(Base(gateway.model, gateway.model), tmp_path):
        if layout.name in wanted:
            digest = adapter_digest(layout.saved)
            probe = probe_of(gateway.model, layout.reference)
            request = AdapterRequest(uri=layout.saved.as_uri(), base="base", digest=digest, probe=probe)
            async with gateway.client() as client:
                published = await client.publish(served_name("layouts", 1, digest), request)
            assert published.translated
            assert published.probe is not None
            assert published.probe.served_minus_publisher <= 0.1 * published.probe.base_minus_publisher


async def test_misnamed_adapter_is_refused_where_stock_vllm_accepts_it_and_serves_base(gateway: Gateway) -> None:
    trained = gateway.adapter(seed=1)
    misnamed = rename_tensors(trained, gateway.folder / "misnamed", {"model.layers": "transformer.h"})
    _, request = publication(gateway, trained, "misnamed")
    digest = adapter_digest(misnamed)
    request = request.model_copy(update={"uri": misnamed.as_uri(), "digest": digest})
    reason = await refusal(gateway, served_name("misnamed", 1, digest), request)
    assert "28 of 28 tensors name no linear layer of the base" in reason
    assert "base_model.model.transformer.h.0.mlp.down_proj.lora_A.weight" in reason

    served, base = await stock_logprobs(gateway, misnamed), await stock_logprobs(gateway, None)
    assert mean_gap(served, base) < 1e-5  # vLLM said 200 and applied nothing
    assert mean_gap(await stock_logprobs(gateway, trained), base) > 0.1


async def stock_logprobs(gateway: Gateway, adapter: Path | None) -> list[float]:
    """Log-probabilities by the engine alone, under an adapter loaded past the gateway (which soon unloads it)."""
    body = {"prompt": sequences(count=1)[0], "max_tokens": 1, "prompt_logprobs": 0}
    async with httpx.AsyncClient(base_url=gateway.engine.url, timeout=60.0) as stock:
        if adapter is None:
            answer = await stock.post("/v1/completions", json=body | {"model": "base"})
            return prompt_logprobs(answer.json()["choices"][0])
        for attempt in range(10):
            name = f"stock-{adapter.name}-{attempt}"
            loaded = await stock.post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(adapter)})
            assert loaded.status_code == 200
            answer = await stock.post("/v1/completions", json=body | {"model": name})
            await stock.post("/v1/unload_lora_adapter", json={"lora_name": name})
            if answer.status_code == 200:
                return prompt_logprobs(answer.json()["choices"][0])
    raise AssertionError("the gateway was always faster")


async def test_adapter_whose_b_is_zero_is_accepted_only_as_a_control(gateway: Gateway) -> None:
    control = gateway.adapter(seed=7, scale=0.0)
    name, request = publication(gateway, control, "flat")
    assert "every lora_B is zero" in await refusal(gateway, name, request)

    name, request = publication(gateway, control, "control", kind=AdapterKind.CONTROL)
    async with gateway.client() as client:
        published = await client.publish(name, request)
    assert published.state is AdapterState.READY
    assert published.probe is not None
    assert published.probe.served_minus_base < 1e-4


async def test_publisher_that_trained_something_else_is_refused_and_may_try_again(gateway: Gateway) -> None:
    name, request = publication(gateway, gateway.adapter(seed=2), "honest")
    other = probe_of(gateway.model, gateway.adapter(seed=3))
    reason = await refusal(gateway, name, request.model_copy(update={"probe": other}))
    assert "what serves is not what was trained" in reason
    async with gateway.client() as client:
        assert (await client.publish(name, request)).state is AdapterState.READY


async def test_changed_alpha_is_refused_by_the_probe(gateway: Gateway) -> None:
    adapter = gateway.adapter(seed=4)
    name, request = publication(gateway, adapter, "alpha")
    doubled = rename_tensors(adapter, gateway.folder / "doubled", {})
    config = json.loads((doubled / "adapter_config.json").read_text())
    (doubled / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 2 * config["lora_alpha"]}))
    assert "alpha" in await refusal(gateway, name, request.model_copy(update={"uri": doubled.as_uri()}))

    async with gateway.client() as client:
        with pytest.raises(ServiceProblem) as caught:  # the engine's cache may hold prompts of the doubled one
            await client.publish(name, request)
    assert caught.value.problem.status == 409
    assert "publish under a new name" in caught.value.problem.detail


async def test_publishing_again_changes_nothing_and_a_name_is_never_reused(gateway: Gateway) -> None:
    name, request = publication(gateway, gateway.adapter(seed=1), "again")
    async with gateway.client() as client:
        first = await client.publish(name, request)
        assert await client.publish(name, request) == first
        assert await client.publish(name, request.model_copy(update={"probe": None})) == first
        with pytest.raises(ServiceProblem) as caught:
            await client.publish(name, request.model_copy(update={"digest": request.digest[:8] + "0" * 56}))
        assert caught.value.problem.status == 409
        assert (await client.adapter(name)).state is AdapterState.READY


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"digest": "0" * 64}, "the name says digest"),
        ({"base": "other"}, "base 'other' is not served here"),
        ({"probe": None}, "`probe` is needed"),
    ],
)
async def test_request_that_contradicts_itself_is_refused(gateway: Gateway, change: object, words: str) -> None:
    name, request = publication(gateway, gateway.adapter(seed=1), "contradiction")
    async with gateway.client() as client:
        with pytest.raises(ServiceProblem) as caught:
            await client.publish(name, request.model_copy(update=change))  # type: ignore[arg-type]
        assert caught.value.problem.status == 422
        assert words in caught.value.problem.detail
        with pytest.raises(ServiceProblem) as asked:
            await client.adapter(name)
        assert asked.value.problem.status == 404


async def test_missing_files_are_refused(gateway: Gateway) -> None:
    name, request = publication(gateway, gateway.adapter(seed=1), "missing")
    nowhere = (gateway.folder / "nowhere").as_uri()
    assert "is no adapter folder" in await refusal(gateway, name, request.model_copy(update={"uri": nowhere}))


async def test_one_name_published_by_several_at_once_is_loaded_once(gateway: Gateway) -> None:
    name, request = publication(gateway, gateway.adapter(seed=9), "together")
    async with gateway.client() as client:
        published = await asyncio.gather(*(client.publish(name, request) for _ in range(4)))
    assert {adapter.state for adapter in published} == {AdapterState.READY}
    folders = await asyncio.to_thread(list, (gateway.folder / "cache").glob(f"{name}.*"))
    assert len(folders) == 1


async def test_uploaded_archive_is_published_from_the_store(gateway: Gateway) -> None:
    adapter = gateway.adapter(seed=6)
    name, request = publication(gateway, adapter, "uploaded")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.add(adapter, "adapter")
    async with gateway.http() as http, gateway.client() as client:
        stored = [(await http.post("/v1/uploads", content=content.getvalue())).json()["uri"] for _ in range(2)]
        assert stored[0] == stored[1]
        published = await client.publish(name, request.model_copy(update={"uri": stored[0]}))
        assert published.state is AdapterState.READY
        assert (await http.post("/v1/uploads", content=b"")).status_code == 422
    async with gateway.http("rollout") as http:
        assert (await http.post("/v1/uploads", content=content.getvalue())).status_code == 403


async def test_deleted_adapter_is_gone_and_may_come_back_as_itself(gateway: Gateway) -> None:
    name, request = publication(gateway, gateway.adapter(seed=5), "deleted")
    async with gateway.client() as client:
        await client.publish(name, request)
        await client.remove(name)
        assert name not in await gateway.engine_models()
        for ask in (client.adapter(name), client.remove(name)):
            with pytest.raises(ServiceProblem) as caught:
                await ask
            assert caught.value.problem.status == 404
        assert name not in [adapter.name for adapter in (await client.adapters()).adapters]
        assert (await client.publish(name, request.model_copy(update={"probe": None}))).state is AdapterState.READY


async def test_of_adapters_in_use_the_one_that_came_first_yields_its_slot(gateway: Gateway) -> None:
    names = []
    async with gateway.client() as client, gateway.http() as http:
        for step in (1, 2, 3):
            name, request = publication(gateway, gateway.adapter(seed=10 + step), "lru", step)
            names.append(name)
            await client.publish(name, request)
        name, request = publication(gateway, gateway.adapter(seed=14), "lru", 4)
        await client.publish(name, request)
        states = [(await client.adapter(name)).state for name in names]
        assert states == [AdapterState.UNLOADED, AdapterState.READY, AdapterState.READY]
        assert await gateway.engine_models() == {"base", *names[1:], name}
        evicted = await http.post("/v1/completions", json={"model": names[0], "prompt": [5, 6], "max_tokens": 1})
        assert evicted.status_code == 409
        assert f"PUT /v1/adapters/{names[0]}" in evicted.json()["detail"]
