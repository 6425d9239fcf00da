"""Swaps under load (A2 of issue 6): publishes one after the other while 16 callers ask the two newest versions.

A real vLLM (CPU build) with a model as large as the small policy, and the real gateway; adapters of rank 16 on every
linear layer, each with its probe made beforehand by transformers and PEFT. Every answer carries the log-probabilities
of a fixed sequence, which are one adapter's fingerprint: it counts as right when they are, by PEFT, those of the
adapter it was asked for. A publish ends when the adapter is ready: fetched, checked, loaded, proven. The rival is a
bare `POST /v1/load_lora_adapter` and unload of the same adapters, on the same engine under the same load: nothing
checked, nothing proven. In turn, raw series printed; memory, disk and slots through it all. Target: median
publish-to-ready under 2 s.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import statistics
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psutil
import torch
from peft import LoraConfig, get_peft_model
from prometheus_client.parser import text_string_to_metric_families
from support.gateway import running_gateway
from transformers import AutoModelForCausalLM

from shared.artifacts import adapter_digest
from shared.contracts.inference import ADAPTER_DIGEST_HEADER, AdapterRequest, Probe, ProbeSequence
from shared.ids import served_name
from tests.inference.conftest import started_engine
from tests.inference.support import SLOTS, VOCABULARY, Gateway, Service, mean_gap, prompt_logprobs
from tests.models import LINEAR_LAYERS, make_model

CALLERS = 16
TARGET_SECONDS = 2.0
ADAPTERS = 24
"""Made beforehand and published again and again, each time as another step: a name is never used twice."""
SAME_NATS = 1e-3
"""Mean |served - PEFT| of the right adapter in float32; wrong ones are off by 100 times that."""
RIVAL_EVERY = 10
"""Publishes between two bare loads."""


@dataclass(frozen=True)
class Version:
    """One adapter, and what it says of the fixed sequence."""

    folder: Path
    digest: str
    probe: Probe
    ids: list[int]
    """The fixed sequence."""
    fingerprint: list[float]


@dataclass
class Record:
    """What was seen."""

    answers: Counter[str] = field(default_factory=Counter)
    publish_seconds: list[float] = field(default_factory=list)
    bare_seconds: list[float] = field(default_factory=list)
    gateway_mb: list[float] = field(default_factory=list)
    engine_mb: list[float] = field(default_factory=list)
    cache_folders: list[int] = field(default_factory=list)
    listed: list[int] = field(default_factory=list)
    """Adapters that the engine lists."""
    phases: dict[str, float] = field(default_factory=dict)
    """Mean seconds of each phase of a swap, as the gateway measured them."""


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swaps", type=int, default=200)
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        model = make_model(folder / "model", hidden=192, layers=4, mlp=512, head_dim=48, vocabulary=1024)
        (folder / "engine").mkdir()
        with started_engine(model, folder / "engine") as engine:
            versions = make_versions(model, folder)
            engine.wait_ready()
            with running_gateway([engine], model, folder) as gateway:
                record = asyncio.run(measure(gateway, versions, arguments.swaps))
    report(record, arguments.swaps)


def make_versions(model: Path, folder: Path) -> list[Version]:
    """ADAPTERS of them; the first sequence is the fingerprint's, the probe has others."""
    torch.manual_seed(0)
    draw = random.Random(0)
    sequences = [[draw.randrange(3, VOCABULARY) for _ in range(32)] for _ in range(4)]
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules=LINEAR_LAYERS)).eval()
    found = []
    for number in range(ADAPTERS):
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(0.0, 0.02)
            logits = adapted(input_ids=torch.tensor(sequences)).logits[:, :-1].log_softmax(-1)
            chosen = logits.gather(-1, torch.tensor(sequences)[:, 1:, None]).squeeze(-1).tolist()
        path = folder / f"adapter-{number}"
        adapted.save_pretrained(path)
        probe = Probe(
            sequences=[
                ProbeSequence(token_ids=ids, start=8, logprobs=values[7:])
                for ids, values in zip(sequences[1:], chosen[1:], strict=True)
            ]
        )
        found.append(Version(path, adapter_digest(path), probe, sequences[0], chosen[0]))
    apart = min(mean_gap(one.fingerprint, other.fingerprint) for one, other in itertools.combinations(found, 2))
    print(f"{ADAPTERS} adapters; fingerprints at least {apart:.3f} nats a token apart")
    assert apart > 10 * SAME_NATS
    return found


async def measure(gateway: Gateway, versions: list[Version], swaps: int) -> Record:
    """So many publishes under load."""
    record = Record()
    newest: deque[tuple[str, Version]] = deque(maxlen=2)
    draw = random.Random(1)
    async with gateway.client() as client, load(gateway, newest, record):
        for step in range(1, swaps + 1):
            version = versions[step % ADAPTERS]
            name = served_name("swap", step, version.digest)
            request = AdapterRequest(
                uri=version.folder.as_uri(), base="base", digest=version.digest, probe=version.probe
            )
            started = time.perf_counter()
            await client.publish(name, request)
            record.publish_seconds.append(time.perf_counter() - started)
            newest.append((name, version))
            if step % RIVAL_EVERY == 0:
                record.bare_seconds.append(await bare_swap(gateway.engine.url, version.folder, step))
            await sample(gateway, record)
            await asyncio.sleep(draw.uniform(0.1, 0.3))
        async with gateway.http() as http:
            record.phases = phase_means((await http.get("/metrics")).text)
    return record


def phase_means(metrics: str) -> dict[str, float]:
    """Phase to mean seconds."""
    totals: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(metrics):
        if family.name == "sqlclimb_adapter_swap_seconds":
            for sample in family.samples:
                totals.setdefault(sample.labels["phase"], {})[sample.name.rsplit("_", 1)[1]] = sample.value
    return {phase: found["sum"] / found["count"] for phase, found in totals.items()}


@contextlib.asynccontextmanager
async def load(gateway: Gateway, newest: deque[tuple[str, Version]], record: Record) -> AsyncIterator[None]:
    """CALLERS at a time ask one of the newest versions, from the first publish on."""
    done = asyncio.Event()

    async def caller(number: int) -> None:
        draw = random.Random(number)
        async with gateway.http() as http:
            while not done.is_set():
                if not newest:
                    await asyncio.sleep(0.05)
                    continue
                name, version = draw.choice(list(newest))
                body = {"model": name, "prompt": version.ids, "max_tokens": draw.randrange(4, 32), "prompt_logprobs": 0}
                answer = await http.post("/v1/completions", json=body | {"temperature": 1.0, "ignore_eos": True})
                record.answers[verdict(answer, version)] += 1

    callers = [asyncio.create_task(caller(number)) for number in range(CALLERS)]
    try:
        yield
    finally:
        done.set()
        await asyncio.gather(*callers)


def verdict(answer: httpx.Response, version: Version) -> str:
    """`right`, or what is wrong with an answer."""
    if answer.status_code != 200:
        return f"HTTP {answer.status_code}: {answer.text[:300]}"
    if answer.headers[ADAPTER_DIGEST_HEADER] != version.digest:
        return "another digest"
    gap = mean_gap(prompt_logprobs(answer.json()["choices"][0]), version.fingerprint)
    return "right" if gap < SAME_NATS else "another adapter"


async def bare_swap(url: str, folder: Path, step: int) -> float:
    """Seconds that vLLM alone takes to load and unload an adapter."""
    name = f"bare-{step}"
    async with httpx.AsyncClient(base_url=url, timeout=60.0) as http:
        started = time.perf_counter()
        loaded = await http.post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(folder)})
        await http.post("/v1/unload_lora_adapter", json={"lora_name": name})
        seconds = time.perf_counter() - started
    assert loaded.status_code == 200, loaded.text
    return seconds


async def sample(gateway: Gateway, record: Record) -> None:
    """Note what is held now."""
    record.gateway_mb.append(tree_mb(gateway.service))
    record.engine_mb.append(tree_mb(gateway.engine))
    record.cache_folders.append(sum(1 for _ in (gateway.folder / "cache").iterdir()))
    record.listed.append(len(await gateway.engine_models()) - 1)


def tree_mb(service: Service) -> float:
    """Resident memory of a program and what it started, MB."""
    assert service.process is not None
    process = psutil.Process(service.process.pid)
    return float(sum(one.memory_info().rss for one in [process, *process.children(recursive=True)])) / 1e6


def report(record: Record, swaps: int) -> None:
    """Series and the last line."""
    print(f"publish to ready, s ({swaps}):", *(f"{seconds:.2f}" for seconds in record.publish_seconds))
    print("bare load and unload, s:", *(f"{seconds:.3f}" for seconds in record.bare_seconds))
    print("phases, mean s:", {phase: round(seconds, 3) for phase, seconds in record.phases.items()})
    print("answers:", dict(record.answers))
    tenth = max(1, swaps // 10)
    for name, series in (("gateway", record.gateway_mb), ("engine", record.engine_mb)):
        print(f"{name} MB, mean of each tenth:", *(f"{statistics.mean(part):.0f}" for part in tenths(series, tenth)))
    print(f"slots {SLOTS}; folders on disk at most {max(record.cache_folders)}, adapters listed {max(record.listed)}")
    median = statistics.median(record.publish_seconds)
    bare = statistics.median(record.bare_seconds)
    wrong = sum(count for verdict, count in record.answers.items() if verdict != "right")
    result = {
        "name": "adapter_swap",
        "ours": round(median, 3),
        "rival": round(bare, 3),
        "ratio": round(median / bare, 2),
        "target": TARGET_SECONDS,
        "unit": "s from publish to ready, median; rival: vLLM's bare load and unload, nothing proven",
        "swaps": swaps,
        "answers": sum(record.answers.values()),
        "failed_or_wrong": wrong,
    }
    print(json.dumps(result))


def tenths(series: list[float], size: int) -> list[list[float]]:
    """Cut in parts of `size`."""
    return [series[at : at + size] for at in range(0, len(series), size)]


if __name__ == "__main__":
    main()
