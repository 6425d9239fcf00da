"""A run through the whole real stack: Ray job, vLLM, sandboxed Postgres; its worker killed on the way."""

import asyncio
import os
import signal
import time
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from cli.stack.home import STACK_VARIABLE, StackHome
from shared.artifacts import adapter_digest
from shared.clients.inference import InferenceClient
from shared.clients.trainer import TrainerClient
from shared.contracts.inference import AdapterState
from shared.contracts.run_config import RunConfig
from shared.contracts.trainer import EventKind, Run, RunEvent, RunRequest, RunState, Step
from shared.ids import parse_served_name
from tests.stack import StackHandle

DEMO_RUN = "smoke-shop-0-run"
STEPS = 6
SECONDS = 240


async def config_of_demo(trainer: TrainerClient, **changes: object) -> RunConfig:
    """What the demo trained with, changed."""
    demo = (await trainer.run(DEMO_RUN)).config
    # the demo's smoke policy has hardly been trained and its band is every prompt: most groups teach nothing
    whole = {"steps": STEPS, "run_ahead": 1, "refills": 1, "guards": {"zero_variance": "warn"}}
    return RunConfig.model_validate(demo.model_dump() | whole | changes)


async def at_step(trainer: TrainerClient, run_id: str, steps: int) -> Run:
    """The run once it has logged that many steps, or has ended."""
    deadline = time.monotonic() + SECONDS
    while True:
        run = await trainer.run(run_id)
        if run.steps_done >= steps or run.finished_at is not None:
            return run
        assert time.monotonic() < deadline, f"{run.steps_done} steps in {SECONDS} s"
        await asyncio.sleep(0.1)


async def ended(trainer: TrainerClient, run_id: str) -> Run:
    return await at_step(trainer, run_id, 10**9)


async def restart_of(trainer: TrainerClient, run_id: str) -> RunEvent:
    """What was told of the one attempt that was begun because the first died."""
    (told,) = [event for event in (await trainer.events(run_id)).events if event.kind is EventKind.RESTARTED]
    return told


def training_workers(stack: StackHandle) -> list[psutil.Process]:
    """The stack's Ray Train workers."""
    found = []
    for process in psutil.process_iter():
        try:
            if "RayTrainWorker" in " ".join(process.cmdline()) and (
                process.environ().get(STACK_VARIABLE) == str(stack.home.resolve())
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def assert_trained_as_served(stack: StackHandle, run_id: str, steps: list[Step]) -> None:
    """Every step once; trainer and engine agree; what is stored is what was published."""
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    for step in steps:
        assert step.staleness == min(1, step.step - 1)
        assert step.logprob_gap < (0.1 if step.staleness else 1e-3), step  # an update lies between the two policies
        assert abs(step.importance_ratio - 1) < (0.2 if step.staleness else 1e-2)
        served, base = map(float, step.probe.split(" / "))
        assert served <= max(base / 10, 1e-5), "the served adapter is not the trained one"
        folder = StackHome(stack.home).artifacts / "runs" / run_id / "adapters" / step.adapter_name
        assert adapter_digest(Path(folder))[:8] == parse_served_name(step.adapter_name).digest8


@pytest.mark.slow
async def test_a_run_whose_worker_was_killed_goes_on_by_itself_and_loses_no_prompt(stack: StackHandle) -> None:
    run_id, urls = "killed", stack.urls
    async with TrainerClient(urls["trainer"], stack.token("admin")) as trainer:
        config = await config_of_demo(trainer)
        await trainer.start(RunRequest(run_id=run_id, config=config))
        await at_step(trainer, run_id, 2)
        (worker,) = training_workers(stack)
        os.kill(worker.pid, signal.SIGKILL)
        done = await ended(trainer, run_id)
        assert done.state is RunState.DONE, done.error
        restarted = await restart_of(trainer, run_id)
        assert "a training worker died" in restarted.message and 2 <= restarted.step < STEPS
        assert (done.attempt, done.steps_done, done.last_policy) == (2, STEPS, f"{run_id}@{STEPS}")
        assert done.versions["trl"] and done.versions["ray"]
        steps = (await trainer.steps(run_id)).steps
    assert_trained_as_served(stack, run_id, steps)
    assert {step.attempt for step in steps if step.step <= restarted.step} == {1}

    async with InferenceClient(urls["inference"], stack.token("admin")) as inference:
        adapters = [adapter for adapter in (await inference.adapters()).adapters if adapter.run_id == run_id]
    assert Counter(adapter.step for adapter in adapters) == Counter(range(1, STEPS + 1)), "one adapter a step"
    assert {adapter.name for adapter in adapters} == {step.adapter_name for step in steps}
    final = next(adapter for adapter in adapters if adapter.step == STEPS)
    assert final.state is AdapterState.READY
    assert final.digest == adapter_digest(Path(final.uri.removeprefix("file://")))


@pytest.mark.slow
async def test_a_stopped_run_keeps_its_last_adapter_and_goes_on_when_started_again(stack: StackHandle) -> None:
    run_id, urls = "stopped", stack.urls
    async with TrainerClient(urls["trainer"], stack.token("admin")) as trainer:
        config = await config_of_demo(trainer, seed=1)
        await trainer.start(RunRequest(run_id=run_id, config=config))
        await at_step(trainer, run_id, 1)
        await trainer.stop(run_id)
        stopped = await ended(trainer, run_id)
        assert stopped.state is RunState.STOPPED and 1 <= stopped.steps_done < STEPS
        async with InferenceClient(urls["inference"], stack.token("admin")) as inference:
            assert (await inference.adapter(stopped.last_adapter)).state is AdapterState.READY
        await trainer.start(RunRequest(run_id=run_id, config=config))
        done = await ended(trainer, run_id)
        assert done.state is RunState.DONE, done.error
        assert_trained_as_served(stack, run_id, (await trainer.steps(run_id)).steps)


async def test_the_trainer_speaks_what_every_service_speaks(stack: StackHandle) -> None:
    url = stack.urls["trainer"]
    async with httpx.AsyncClient(base_url=url) as http:
        ready = (await http.get("/readyz")).json()
        assert ready["ready"] and ready["checks"] == {"database": "ok", "ray": "ok"}
        assert ready["versions"]["trl"] and ready["versions"]["ray"]
        assert (await http.get("/v1/runs/x")).status_code == 401
        assert "/v1/runs" in (await http.get("/openapi.json")).json()["paths"]
