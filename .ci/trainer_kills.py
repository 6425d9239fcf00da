"""Acceptance A4 of issue 7: SIGKILL to each part of a running stack in turn under a run of 12 steps.

    python .ci/trainer_kills.py --home HOME [--run RUN] [--seed N] [--parts trainer-worker,driver,…]

HOME is the folder of a stack that has trained (`sqlclimb demo`'s), RUN one of its runs, whose band and settings are
taken. First a run that nobody disturbs; then for each part one that loses it, with all it started, at a seeded moment
with work in flight. Nothing is done by hand: a run whose job died is started again by the trainer itself. Then: every
step once, by attempts that took over from one another; in each step the twin's prompts, each sample once; and the final
adapter's holdout score within noise of the twin's (paired sign-flip test, 5 % over all parts). Exits 1 on a fault.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path

import stamina

from cli.follow import patiently
from cli.stack.home import StackHome
from services.rollout.samplings.records import batch_sampling_id
from shared.clients.rollout import RolloutClient
from shared.clients.trainer import TrainerClient
from shared.contracts.measuring import DeltaLine, DeltaRequest
from shared.contracts.rollout import SamplingParameters, SamplingRequest, SamplingState
from shared.contracts.run_config import RunConfig
from shared.contracts.trainer import Run, RunRequest, RunState, Step
from tests.rollout.killing import TRAINING, kill, victims
from tests.stack import StackHandle

PARTS = (*TRAINING, "coordinator", "worker", "proxy", "inference", "engine", "verifier", "postgres")
STEPS = 12
HOLDOUT = 500
K = 4
RUN_SECONDS = 1200.0
SIGNIFICANCE = 0.05


class Matrix:
    """A stack, its clients, and the run that the others are compared with."""

    def __init__(self, stack: StackHandle, config: RunConfig, seed: int) -> None:
        self.home = StackHome(stack.home)
        self.domain = stack.domain
        self.config = config
        self.draw = random.Random(seed)
        self.stamp = int(time.time())
        urls, token = stack.urls, stack.token("admin")
        self.rollout = RolloutClient(urls["rollout"], token, timeout_seconds=60)
        self.trainer = TrainerClient(urls["trainer"], token, timeout_seconds=60)

    async def train(self, part: str) -> tuple[Run, int]:
        """The run that loses `part`, at its end; and how many processes were killed."""
        run_id = self.id(part)
        request = RunRequest(run_id=run_id, config=self.config)
        await patiently(lambda: self.trainer.start(request))
        killed, began = 0, time.monotonic()
        after, wait = self.draw.randint(2, STEPS - 3), self.draw.uniform(0.0, 4.0)
        while True:
            assert time.monotonic() - began < RUN_SECONDS, f"{run_id} does not end"
            run = await patiently(lambda: self.trainer.run(run_id))
            if run.finished_at is not None:
                return run, killed
            if part != "twin" and not killed and run.steps_done >= after:
                await asyncio.sleep(wait)  # into the step's sampling, learning or publishing
                killed = kill(victims(self.home, part, self.draw))
                print(f"  {run_id}: {killed} processes killed {wait:.1f} s after step {run.steps_done}", flush=True)
            await asyncio.sleep(0.1)

    async def faults(self, part: str, run: Run, twins: dict[int, list[str]]) -> list[str]:
        """What is wrong with a run that has ended, but for its score."""
        found = [] if run.state is RunState.DONE else [f"{run.state}: {run.error}"]
        steps = (await patiently(lambda: self.trainer.steps(run.run_id))).steps
        if [step.step for step in steps] != list(range(1, STEPS + 1)):
            found.append(f"steps {[step.step for step in steps]}")
        if not in_turn(steps):
            found.append(f"attempts wrote in turns: {[step.attempt for step in steps]}")
        prompts = await self.prompts(run.run_id)
        for step, tasks in prompts.items():
            if len(tasks) != len(set(tasks)) or (twins and tasks != twins[step]):
                found.append(f"step {step}: prompts {tasks}, the twin's {twins.get(step)}")
        return found

    async def prompts(self, run_id: str) -> dict[int, list[str]]:
        """Each step's tasks, from the ledger. Fails where a sample is there twice or missing."""
        prompts = {}
        for step in range(1, STEPS + 1):
            name = batch_sampling_id(run_id, step)
            rows = Counter([(row.task_id, row.sample_index) async for row in self.rollout.rows(name)])
            assert set(rows.values()) == {1}, f"{name}: a row is there twice"
            assert len(rows) == self.config.prompts_per_step * self.config.k, f"{name}: {len(rows)} rows"
            prompts[step] = sorted({task for task, _ in rows})
        return prompts

    async def score(self, part: str) -> str:
        """The holdout sampling of the run's last policy, once it is done."""
        name = f"{self.id(part)}-after"
        request = SamplingRequest(
            sampling_id=name,
            domain=self.domain,
            policy=f"{self.id(part)}@{STEPS}",
            regime=self.config.regime,
            parameters=SamplingParameters(k=K, temperature=1.0, top_p=1.0, max_tokens=self.config.max_tokens),
            limit=HOLDOUT,
        )
        await patiently(lambda: self.rollout.start(request))
        while True:
            if (await patiently(lambda: self.rollout.sampling(name))).state is SamplingState.DONE:
                return name
            await asyncio.sleep(1.0)

    async def against(self, twin: str, after: str) -> DeltaLine:
        """The paired difference of two holdout samplings."""
        request = DeltaRequest(before=[twin], after=[after], domain=self.domain)
        return (await patiently(lambda: self.rollout.delta(request))).lines[0]

    def id(self, part: str) -> str:
        """Of the run that loses `part`."""
        return f"kills-{self.stamp}-{part}"


def in_turn(steps: list[Step]) -> bool:
    """Whether no attempt wrote after a newer one."""
    attempts = [step.attempt for step in steps]
    return attempts == sorted(attempts)


async def run_matrix(stack: StackHandle, run: str, seed: int, parts: list[str]) -> bool:
    """The twin, then every part; whether none had a fault."""
    async with TrainerClient(stack.urls["trainer"], stack.token("admin")) as trainer:
        taken = (await trainer.run(run)).config.model_dump()
    config = RunConfig.model_validate(taken | {"steps": STEPS, "prompts_per_step": 8, "run_ahead": 1, "refills": 0})
    matrix = Matrix(stack, config, seed)
    clean = []
    async with matrix.rollout, matrix.trainer:
        run, _ = await matrix.train("twin")
        faults = await matrix.faults("twin", run, {})
        assert not faults, faults
        prompts, twin = await matrix.prompts(run.run_id), await matrix.score("twin")
        for part in parts:
            run, killed = await matrix.train(part)
            faults = await matrix.faults(part, run, prompts)
            if not killed:
                faults.append("there was nothing to kill")
            line = await matrix.against(twin, await matrix.score(part))
            if line.p_value < SIGNIFICANCE / len(parts):  # Bonferroni: each part is one more chance to be wrong
                faults.append("its score is not the twin's")
            score = line.delta
            print(
                f"{part:<14} {run.state} after {run.attempt} attempts, {run.steps_done} steps; holdout against the "
                f"twin {score.value:+.3f} [{score.low:+.3f}, {score.high:+.3f}], p {line.p_value:.2f}"
                + "".join(f"\n  FAULT {fault}" for fault in faults),
                flush=True,
            )
            clean.append(not faults)
    print(f"{len(clean)} parts, {clean.count(True)} without a fault")
    return all(clean)


def main() -> None:
    """The matrix on one stack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--run", default="demo-shop-0-run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args()
    stamina.instrumentation.set_on_retry_hooks([])
    stack = StackHandle(options.home)
    try:
        stack.cli("up")
        clean = asyncio.run(run_matrix(stack, options.run, options.seed, options.parts.split(",")))
    finally:
        stack.stop()
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
