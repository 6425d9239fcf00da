"""Overlap of generation and learning (A3 of issue 7): one step ahead against in turn, on the same samples.

A real attempt (learner, checkpoints, publishing, control database) against rollout and inference stand-ins over HTTP.
Samples were drawn once; a batch then takes as long as a step without its wait took in a calibration run, by sleep:
generation on other machines costs the learner no time. In turn, raw series printed. The share is the time that the
trainer waits for samples, from the third step on. Target: under 0.15 one step ahead; in turn it is about a half.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from cli.stack.home import TOKEN_SCOPES
from services.trainer.job.attempt import Attempt
from services.trainer.job.records import RunRecords
from services.trainer.repository import RunRepository
from services.trainer.settings import JobSettings
from shared.auth import write_tokens
from shared.contracts.rollout import BatchGroup, BatchRequest
from shared.contracts.run_config import GuardAction, GuardName, LoraConfig, RunConfig
from shared.contracts.trainer import Step
from shared.database import migrate, open_pool
from tests.conftest import started_control_cluster
from tests.models import make_model
from tests.trainer.peer_app import serving
from tests.trainer.peers import BAND_TASKS, Peers

FIRST = 3
"""The first step that a step before it could hide behind."""


@dataclass
class Loop:
    """What runs share."""

    dsn: str
    settings: JobSettings
    config: RunConfig
    runs: int = 0

    def run(self, ahead: int) -> list[Step]:
        """A run's steps from the third on."""
        self.runs += 1
        run_id = f"run-{self.runs}"
        config = self.config.model_copy(update={"run_ahead": ahead})

        async def create() -> None:
            async with open_pool(self.dsn) as pool:
                await RunRepository(pool).create(run_id, config)

        asyncio.run(create())
        records = RunRecords(self.dsn, run_id, 1)
        Attempt(self.settings, records.begin({}), records).run()
        return records.steps()[FIRST - 1 :]


def waiting_share(steps: list[Step]) -> float:
    """Time waited for samples over all time."""
    return sum(s.seconds.sample + s.seconds.verify for s in steps) / sum(s.seconds.total for s in steps)


def paced(peers: Peers, seconds: list[float]) -> None:
    """From now on every batch is answered from what is drawn here, after `seconds[0]`."""
    request = BatchRequest(
        run_id="drawn",
        attempt=1,
        step=1,
        domain="shop",
        policy="base",
        adapter_digest="base",
        task_ids=BAND_TASKS,
        k=8,
        max_tokens=64,
    )
    drawn = {group.task_id: group for group in peers.sample(request)}

    def answer(asked: BatchRequest) -> list[BatchGroup]:
        time.sleep(seconds[0])
        claimed = {"adapter_digest": asked.adapter_digest}
        return [
            drawn[task].model_copy(update={"samples": [s.model_copy(update=claimed) for s in drawn[task].samples]})
            for task in asked.task_ids
        ]

    peers.sample = answer  # type: ignore[method-assign]


def main() -> None:
    """Calibrate, alternate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with ExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory(prefix="training-loop-")))
        (folder / "control").mkdir()
        (folder / "artifacts").mkdir()
        tokens = folder / "tokens.json"
        write_tokens(tokens, TOKEN_SCOPES)
        model = make_model(folder / "model", hidden=192, layers=4, mlp=512, head_dim=48, vocabulary=1024)
        dsn = running.enter_context(started_control_cluster(folder / "control"))
        migrate(dsn)
        peers = running.enter_context(serving(model, tokens))
        seconds = [0.0]
        paced(peers, seconds)
        settings = JobSettings(
            db=dsn,
            artifacts=(folder / "artifacts").as_uri(),
            checkpoints=folder / "checkpoints",
            rollout_url=peers.url,
            inference_url=peers.url,
            tokens_file=tokens,
            learner_threads=1,
        )
        config = RunConfig(
            domain="shop",
            model=str(model),
            band_id="band",
            steps=options.steps,
            prompts_per_step=8,
            k=8,
            max_tokens=64,
            learning_rate=1e-4,
            lora=LoraConfig(rank=8, alpha=16),
            refills=0,
            guards=dict.fromkeys(GuardName, GuardAction.OFF),
        )
        loop = Loop(dsn, settings, config)
        loop.run(0)  # imports and caches
        alone = loop.run(0)
        seconds[0] = statistics.median(step.seconds.total for step in alone)
        print(f"a step without its samples takes {seconds[0]:.2f} s: so long will every batch take")
        shares: dict[int, list[float]] = {1: [], 0: []}
        walls: dict[int, list[float]] = {1: [], 0: []}
        for _ in range(options.alternations):
            for ahead in (1, 0):
                steps = loop.run(ahead)
                shares[ahead].append(waiting_share(steps))
                walls[ahead].append(statistics.fmean(step.seconds.total for step in steps))
        for ahead, title in ((1, "one step ahead"), (0, "in turn")):
            print(f"{title:<15} waiting share", *(f"{share:.3f}" for share in shares[ahead]))
            print(f"{title:<15} seconds a step", *(f"{wall:.2f}" for wall in walls[ahead]))
    ours, rival = statistics.median(shares[1]), statistics.median(shares[0])
    speedup = statistics.median(walls[0]) / statistics.median(walls[1])
    print(f"steps are {speedup:.2f} times as fast one step ahead")
    line = {"name": "training_loop", "ours": ours, "rival": rival, "ratio": ours / rival, "target": 0.15}
    print(json.dumps(line | {"unit": "share of a step spent waiting for samples"}))


if __name__ == "__main__":
    main()
