"""Acceptance A1 of issue 6: adapters in every layout are served as PEFT computes them, broken ones never reach vLLM.

Each adapter is given to stock vLLM first (the engine alone), then to the gateway. `.ci/adapter_matrix.py` prints the
table; the minutes it takes are the engines'.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import httpx
import pytest

from shared.artifacts import ArtifactError, adapter_digest
from shared.clients.base import ServiceProblem
from shared.contracts.inference import AdapterRequest, AdapterState, Probe, ProbeSequence
from shared.ids import served_name
from tests.inference import bases, broken
from tests.inference.bases import Base
from tests.inference.conftest import started_engine, started_gateway
from tests.inference.saved_layouts import Layout, fused_layouts, split_layouts
from tests.inference.support import Gateway, Service, mean_gap, prompt_logprobs, sequences
from tests.models import token_logprobs

pytestmark = pytest.mark.slow

SHARE = 0.1
"""What |served - PEFT| may be of |base - PEFT|."""

PROBED = 3
SEQUENCES = sequences(count=PROBED) + sequences(count=4, length=30, seed=99)
"""The first are the probe's; what is served is compared on the others."""

LOADED = "Loaded new LoRA adapter"
"""What vLLM's log says for each."""

SAME = 1e-4
"""Below this two servings are one, in float32."""

Layouts = Callable[[Base, Path], Iterator[Layout]]


@pytest.mark.parametrize(
    ("make_base", "layouts"),
    [(bases.wrapped, split_layouts), (bases.dense, split_layouts), (bases.fused, fused_layouts)],
    ids=["wrapped", "dense", "fused"],
)
async def test_every_layout_is_served_as_trained_and_every_broken_one_is_refused(
    make_base: Callable[[Path], Base],
    layouts: Layouts,
    control_cluster: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = make_base(tmp_path / "base")
    good = list(layouts(base, tmp_path))
    faulty = {
        name: (broken.copy(good[0].saved, tmp_path / f"broken-{index}", *changes), words)
        for index, (name, (changes, words)) in enumerate(broken.BROKEN.items())
    }
    (tmp_path / "engine").mkdir()
    (tmp_path / "gateway").mkdir()
    gateway_does: dict[str, str] = {}
    stock: dict[str, str] = {}
    faults: list[str] = []
    with started_engine(base.served, tmp_path / "engine", max_lora_rank="32") as engine:
        engine.wait_ready()
        with started_gateway(
            [engine], base.served, control_cluster, tmp_path / "gateway", max_lora_rank="32"
        ) as gateway:
            gateway.service.wait_ready()
            for layout in good:
                gateway_does[layout.name], share = await published(gateway, base, layout)
                if not share <= SHARE:
                    faults.append(f"{layout.name}: {gateway_does[layout.name]}")
            for name, (folder, words) in faulty.items():
                reason = await refused(gateway, folder, base, good[0].reference)
                gateway_does[name] = f"refused: {reason[:150]}"
                if words not in reason:
                    faults.append(f"{name}: {reason}")
            reason = await refused(gateway, good[0].saved, base, good[0].reference, digest="0" * 64)
            gateway_does["digest mismatch"] = f"refused: {reason[:150]}"
            assert engine.log.read_text().count(LOADED) == len(good)  # vLLM saw none of the broken ones
        for layout in good:
            stock[layout.name] = await stock_does(engine, layout.saved, base, layout.reference)
        for name, (folder, _) in faulty.items():
            stock[name] = await stock_does(engine, folder, base, None)
    with capsys.disabled():
        print(f"\n{make_base.__name__} base\n  {'adapter':40}{'stock vLLM':26}gateway")
        for name, words in gateway_does.items():
            print(f"  {name:40}{stock.get(name, '-'):26}{words}")
    assert not faults, "\n".join(faults)


@cache
def logprobs_of(text: Path, adapter: Path | None) -> list[list[float]]:
    """What transformers and PEFT find for each of SEQUENCES."""
    return token_logprobs(text, SEQUENCES, adapter)


def flat(values: list[list[float]]) -> list[float]:
    """Of all sequences."""
    return [value for sequence in values for value in sequence]


def probe_of(base: Base, reference: Path) -> Probe:
    """The first sequences, scored from their ninth token on."""
    found = zip(SEQUENCES[:PROBED], logprobs_of(base.text, reference)[:PROBED], strict=True)
    return Probe(sequences=[ProbeSequence(token_ids=ids, start=8, logprobs=values[7:]) for ids, values in found])


async def stock_does(engine: Service, adapter: Path, base: Base, reference: Path | None) -> str:
    """Status, and what the loaded adapter really does to log-probabilities."""
    body = {"prompt": SEQUENCES[:2], "max_tokens": 1, "prompt_logprobs": 0}
    async with httpx.AsyncClient(base_url=engine.url, timeout=120.0) as http:

        async def logprobs(model: str) -> list[float]:
            answer = await http.post("/v1/completions", json=body | {"model": model})
            answer.raise_for_status()
            return [value for choice in answer.json()["choices"] for value in prompt_logprobs(choice)]

        name = f"stock-{secrets.token_hex(3)}"
        try:
            answer = await http.post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(adapter)})
            if answer.status_code != 200:
                return str(answer.status_code)
            served, plain = await logprobs(name), await logprobs("base")
        except (httpx.TransportError, httpx.HTTPStatusError):
            await asyncio.to_thread(engine.wait_ready)  # it is started again
            return "200, then THE ENGINE DIES"
        await http.post("/v1/unload_lora_adapter", json={"lora_name": name})
    if mean_gap(served, plain) < SAME:
        return "200, SERVES BASE"
    if reference is None:
        return "200, serves something"
    peft = flat(logprobs_of(base.text, reference)[:2])
    share = mean_gap(served, peft) / mean_gap(plain, peft)
    return "200, as trained" if share <= SHARE else f"200, PARTLY APPLIED ({share:.2f})"


async def published(gateway: Gateway, base: Base, layout: Layout) -> tuple[str, float]:
    """What a publish did, and |served - PEFT| / |base - PEFT| on sequences the probe does not hold."""
    digest = adapter_digest(layout.saved)
    name = served_name(f"m{secrets.token_hex(2)}", 1, digest)
    request = AdapterRequest(
        uri=layout.saved.as_uri(), base="base", digest=digest, probe=probe_of(base, layout.reference)
    )
    async with gateway.client() as client, gateway.http() as http:
        try:
            ready = await client.publish(name, request)
        except ServiceProblem as error:
            return f"NOT PUBLISHED: {error}", float("inf")
        assert ready.state is AdapterState.READY
        body = {"model": name, "prompt": SEQUENCES[PROBED:], "max_tokens": 1, "prompt_logprobs": 0}
        answer = await http.post("/v1/completions", json=body)
        served = [value for choice in answer.json()["choices"] for value in prompt_logprobs(choice)]
    peft, plain = (flat(logprobs_of(base.text, adapter)[PROBED:]) for adapter in (layout.reference, None))
    gap, moved = mean_gap(served, peft), mean_gap(plain, peft)
    translated = ", translated" if ready.translated else ""
    return f"ready: {ready.tensors_placed} placed{translated}, |served-PEFT| {gap:.1e} of {moved:.2f}", gap / moved


async def refused(gateway: Gateway, folder: Path, base: Base, reference: Path, digest: str | None = None) -> str:
    """The reason of a refusal; nothing of it is listed."""
    try:
        digest = digest or adapter_digest(folder)
    except ArtifactError:
        digest = secrets.token_hex(32)
    name = served_name(f"x{secrets.token_hex(2)}", 1, digest)
    request = AdapterRequest(uri=folder.as_uri(), base="base", digest=digest, probe=probe_of(base, reference))
    async with gateway.client() as client:
        with pytest.raises(ServiceProblem) as caught:
            await client.publish(name, request)
        assert caught.value.problem.status == 422
        assert name not in await gateway.engine_models()
        assert (await client.adapter(name)).state is AdapterState.REFUSED
    return caught.value.problem.detail.partition("was refused: ")[2]
