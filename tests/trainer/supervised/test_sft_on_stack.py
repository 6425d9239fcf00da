"""Supervised runs through the whole real stack: Ray job, author, rollout, vLLM; the worker killed on the way."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from cli.stack.home import StackHome
from shared.artifacts import adapter_digest
from shared.clients.author import AuthorClient
from shared.clients.base import ServiceProblem
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.clients.trainer import TrainerClient
from shared.contracts.inference import AdapterState
from shared.contracts.run_config import GRPO_FIELDS, RunConfig
from shared.contracts.tasks import PrivilegedTask
from shared.contracts.trainer import CurvePoint, RunRequest, RunState
from shared.ids import parse_served_name
from tests.stack import StackHandle
from tests.trainer.test_run_on_stack import DEMO_RUN, at_step, ended, restart_of, training_workers

STEPS = 12
SECONDS = 240
TRAIN_SAMPLING = "smoke-shop-0-band"
"""The demo's sampling of train tasks."""


async def sft_config_of_demo(trainer: TrainerClient, **changes: object) -> RunConfig:
    """A supervised run of the demo's model and regime."""
    demo = (await trainer.run(DEMO_RUN)).config.model_dump(exclude={*GRPO_FIELDS, "guards", "sft"})
    supervised = {
        "method": "sft",
        "sft": {"golds": True},
        "steps": STEPS,
        "prompts_per_step": 16,
        "learning_rate": 2e-3,
        "evaluation": demo["evaluation"] | {"every": STEPS, "limit": 40, "k": 1},
    }
    return RunConfig.model_validate(demo | supervised | changes)


async def measured(stack: StackHandle, run_id: str) -> list[CurvePoint]:
    """The run's checkpoints once all are measured."""
    deadline = time.monotonic() + SECONDS
    async with TrainerClient(stack.urls["trainer"], stack.token("admin")) as trainer:
        while True:
            curve = (await trainer.run(run_id)).curve
            assert not [point.error for point in curve if point.error]
            if all(point.pass_at_1 is not None for point in curve):
                return curve
            assert time.monotonic() < deadline, curve
            await asyncio.sleep(0.5)


@pytest.mark.slow
async def test_golds_warm_the_policy_survive_a_kill_are_served_and_measured(stack: StackHandle) -> None:
    run_id, urls = "sft-golds", stack.urls
    async with TrainerClient(urls["trainer"], stack.token("admin")) as trainer:
        config = await sft_config_of_demo(trainer)
        await trainer.start(RunRequest(run_id=run_id, config=config))
        await at_step(trainer, run_id, 3)
        (worker,) = training_workers(stack)
        os.kill(worker.pid, signal.SIGKILL)
        done = await ended(trainer, run_id)
        assert done.state is RunState.DONE, done.error
        restarted = await restart_of(trainer, run_id)
        assert 3 <= restarted.step < STEPS
        steps = (await trainer.steps(run_id)).steps
    assert (done.attempt, done.last_policy) == (2, f"{run_id}@{STEPS}")
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    assert {step.attempt for step in steps if step.step <= restarted.step} == {1}
    artifacts = StackHome(stack.home).artifacts / "runs" / run_id / "adapters"
    for step in steps:
        served, base = map(float, step.probe.split(" / "))
        assert served <= max(base / 10, 1e-5), "the served adapter is the trained one"
        assert adapter_digest(artifacts / step.adapter_name)[:8] == parse_served_name(step.adapter_name).digest8
    print("loss", steps[0].loss, "→", steps[-1].loss, "publish s", sum(step.seconds.publish for step in steps))
    print("learn s", sum(step.seconds.learn for step in steps))
    assert steps[-1].loss < steps[0].loss

    async with InferenceClient(urls["inference"], stack.token("admin")) as inference:
        assert (await inference.adapter(done.last_adapter)).state is AdapterState.READY
    before, after = await measured(stack, run_id)
    print("holdout pass@1", before.pass_at_1, "→", after.pass_at_1)
    assert (before.step, after.step) == (0, STEPS)

    async with AuthorClient(urls["author"], stack.token("admin")) as author:
        tasks = (await author.tasks("shop", privileged=True)).tasks
    golds = [gold.encode() for task in tasks if isinstance(task, PrivilegedTask) for gold in task.privileged.golds]
    telling = [gold for gold in golds if len(gold) >= 40]
    for folder in (stack.home / "checkpoints" / run_id, artifacts, stack.home / "logs"):
        for path in folder.rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            assert not [gold for gold in telling if gold in content], path
    shown = stack.cli("runs", "show", run_id).stdout
    assert "loss" in shown and "accuracy" in shown and "holdout" in shown, shown


@pytest.mark.slow
async def test_a_dry_run_of_the_command_counts_the_right_replies_of_a_sampling(stack: StackHandle) -> None:
    options = ("--method", "sft", "--run", "sft-replies", "--from-sampling", TRAIN_SAMPLING, "--dry-run")
    counts = stack.cli("train", "shop", *options).stdout
    async with RolloutClient(stack.urls["rollout"], stack.token("admin")) as rollout:
        rows = [row async for row in rollout.rows(TRAIN_SAMPLING)]
    right = {row.task_id for row in rows if row.status == "match" and row.finish_reason == "stop"}
    assert f"tasks      {len({row.task_id for row in rows})} of the train split" in counts
    assert f"kept       {len(right)} examples" in counts and "Nothing was started" in counts, counts
    golden = stack.cli("train", "shop", "--method", "sft", "--run", "sft-golds", "--golds", "--dry-run").stdout
    assert "kept       0 examples" not in golden, golden


@pytest.mark.slow
async def test_holdout_and_golds_of_others_are_refused_in_a_sentence(stack: StackHandle) -> None:
    refused = stack.cli(
        *("train", "shop", "--method", "sft", "--run", "no", "--from-sampling", "smoke-shop-0-base"), check=False
    )
    assert refused.returncode == 2 and "asked the holdout split" in refused.stderr, refused.stderr
    async with TrainerClient(stack.urls["trainer"], stack.token("trainer")) as trainer:
        config = await sft_config_of_demo(trainer)
        with pytest.raises(ServiceProblem, match="the caller's token needs the `gold` scope") as error:
            await trainer.start(RunRequest(run_id="no", config=config))
        assert error.value.problem.status == 403
    assert not (Path(stack.home) / "checkpoints" / "no").exists()
