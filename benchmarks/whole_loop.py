"""The whole loop on the small policy (A3 of issue 7): seconds of a step by phase, against TRL generating for itself.

    PYTHONPATH=. python benchmarks/whole_loop.py --home HOME [--run demo-shop-0-run]

HOME is the folder of a stack that has run `sqlclimb demo`. Ours: runs of a few steps with the settings of RUN, through
every service, by vLLM and our learner in turn. The rival: stock `GRPOTrainer` with `use_vllm=False` in one process, on
the same policy, prompts, k, budget, LoRA, loss, float32 and threads, with rewards by the same verifier in one call a
step; it serves nothing and keeps nothing. In turn; each run's first step is not counted. Overhead: the time of our step
in which neither the engine nor the learner works. Target: at most 10 %. On a CPU transformers generates about as fast
as vLLM, so the ratio of whole steps is printed without a target.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback

from services.trainer.learning.learner import GRPOTrainer  # TRL's own; imported there after it has been told of no vLLM
from services.trainer.learning.settings import grpo_config, lora_config
from services.trainer.small_policy.examples import reference_of
from shared.clients.author import AuthorClient
from shared.clients.rollout import RolloutClient
from shared.clients.trainer import TrainerClient
from shared.clients.verifier import VerifierClient
from shared.contracts.run_config import RunConfig
from shared.contracts.tasks import PrivilegedTask
from shared.contracts.trainer import RunRequest, Step
from shared.contracts.verifier import FinishReason, SandboxRequest, VerifyItem, VerifyRequest
from shared.domain import find_bundle, messages
from shared.settings import REPOSITORY
from tests.stack import StackHandle

SANDBOX = "whole-loop"


class Services:
    """A running stack, asked for what both sides need."""

    def __init__(self, stack: StackHandle) -> None:
        self._urls, self._token = stack.urls, stack.token("admin")

    async def config_of(self, run: str) -> RunConfig:
        """Of an earlier run."""
        async with TrainerClient(self._urls["trainer"], self._token) as trainer:
            return (await trainer.run(run)).config

    async def prompts_of(self, config: RunConfig) -> list[PrivilegedTask]:
        """The band's tasks, with golds; their sandbox is made."""
        async with RolloutClient(self._urls["rollout"], self._token) as rollout:
            band = await rollout.band(config.band_id or "")
        async with AuthorClient(self._urls["author"], self._token) as author:
            found = {task.id: task for task in (await author.tasks(config.domain, privileged=True)).tasks}
        async with VerifierClient(self._urls["verifier"], self._token) as verifier:
            await verifier.create_sandbox(SandboxRequest(sandbox_id=SANDBOX, run_id=SANDBOX, domain=config.domain))
        tasks = [found[task_id] for task_id in band.task_ids]
        return [task for task in tasks if isinstance(task, PrivilegedTask)]

    async def train(self, run_id: str, config: RunConfig) -> list[Step]:
        """A run's steps, but for the first."""
        async with TrainerClient(self._urls["trainer"], self._token) as trainer:
            await trainer.start(RunRequest(run_id=run_id, config=config))
            while True:
                run = await trainer.run(run_id)
                if run.finished_at is not None:
                    assert run.steps_done == config.steps, run.error
                    return (await trainer.steps(run_id)).steps[1:]
                await asyncio.sleep(0.2)

    async def rewards(self, replies: list[str], golds: list[str], ordered: list[bool]) -> list[float | None]:
        """One call for all."""
        items = [
            VerifyItem(reply=reply, finish_reason=FinishReason.STOP, gold=gold, order_matters=order)
            for reply, gold, order in zip(replies, golds, ordered, strict=True)
        ]
        async with VerifierClient(self._urls["verifier"], self._token, timeout_seconds=300) as verifier:
            return [verdict.reward for verdict in (await verifier.verify(SANDBOX, VerifyRequest(items=items))).verdicts]


class Phases(TrainerCallback):  # type: ignore[misc]
    """Seconds of each of the rival's steps: whole, generating, verifying."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.generate = self.verify = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._started, self.generate, self.verify = time.perf_counter(), 0.0, 0.0

    def on_step_end(self, *_: Any, **__: Any) -> None:
        total = time.perf_counter() - self._started
        learn = total - self.generate - self.verify
        self.steps.append({"total": total, "sample": self.generate, "verify": self.verify, "learn": learn})


def rival(config: RunConfig, tasks: list[PrivilegedTask], services: Services, folder: Path) -> list[dict[str, float]]:
    """Stock TRL's steps, but for the first."""
    phases = Phases()
    bundle = find_bundle(config.domain, [REPOSITORY / "domains"])
    chosen = tasks[: config.prompts_per_step * config.steps]
    rows = [
        {
            "prompt": [message.model_dump() for message in messages(bundle, config.regime, task.question)],
            "gold": reference_of(task),
            "ordered": task.order_matters,
        }
        for task in chosen
    ]

    def reward(completions: list[Any], gold: list[str], ordered: list[bool], **_: Any) -> list[float | None]:
        started = time.perf_counter()
        found = asyncio.run(services.rewards([reply[0]["content"] for reply in completions], gold, ordered))
        phases.verify += time.perf_counter() - started
        return found

    args = grpo_config(config, folder, accelerated=False, checkpointing=False, whole_groups=True)
    args.save_strategy = "no"
    trainer = GRPOTrainer(
        model=config.model,
        processing_class=AutoTokenizer.from_pretrained(config.model, padding_side="left"),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_list(rows),
        peft_config=lora_config(config),
        callbacks=[phases],
    )
    trainer.remove_callback(PrinterCallback)
    generate = trainer._generate

    def timed(*given: Any, **named: Any) -> Any:
        started = time.perf_counter()
        found = generate(*given, **named)
        phases.generate += time.perf_counter() - started
        return found

    trainer._generate = timed
    trainer.train()
    return phases.steps[1:]


def medians(steps: list[dict[str, float]]) -> dict[str, float]:
    """Of each phase."""
    return {name: round(statistics.median(step[name] for step in steps), 2) for name in steps[0]}


def main() -> None:
    """Alternate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--run", default="demo-shop-0-run")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(2)
    stack = StackHandle(options.home)
    stack.cli("up")
    ours: list[list[dict[str, float]]] = []
    theirs: list[list[dict[str, float]]] = []
    try:
        services = Services(stack)
        config = asyncio.run(services.config_of(options.run)).model_copy(update={"steps": options.steps})
        tasks = asyncio.run(services.prompts_of(config))
        with TemporaryDirectory() as folder:
            for number in range(options.alternations):
                found = asyncio.run(services.train(f"whole-loop-{int(time.time())}", config))
                ours.append([step.seconds.model_dump(exclude={"generation"}) for step in found])
                theirs.append(rival(config, tasks, services, Path(folder) / str(number)))
                print(f"ours {medians(ours[-1])}", f"TRL  {medians(theirs[-1])}", sep="\n", flush=True)
    finally:
        stack.stop()
    steps = [step for run in ours for step in run]
    outside = [1 - (step["sample"] + step["learn"]) / step["total"] for step in steps]
    mine, other = ([statistics.median(step["total"] for step in run) for run in side] for side in (ours, theirs))
    print(f"seconds of a step: ours {[round(s, 2) for s in mine]}, TRL {[round(s, 2) for s in other]}")
    print(f"outside engine and learner: {statistics.mean(outside):.1%} of a step; target 10 %")
    result = {
        "name": "whole_loop",
        "ours": round(statistics.median(mine), 2),
        "rival": round(statistics.median(other), 2),
        "ratio": round(statistics.median(other) / statistics.median(mine), 2),
        "outside_engine_and_learner": round(statistics.mean(outside), 3),
        "unit": "seconds a step",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
