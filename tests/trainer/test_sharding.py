"""A run whose workers share the frozen weights (FSDP2): two gloo processes, killed, resumed, at last by one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.stack.home import free_ports
from services.trainer.job.records import RunRecords
from shared.contracts.trainer import RunState
from tests.trainer.test_attempt import STEPS, Bench, assert_whole, bench, model

__all__ = ["bench", "model"]  # fixtures

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = "import json, sys; from services.trainer.job.worker import train_in_worker as train; "
CODE += "train(json.loads(sys.argv[1]))"


def two_workers(bench: Bench, records: RunRecords) -> list["subprocess.Popen[bytes]"]:
    """One attempt, as in two Ray Train workers."""
    settings_file = bench.settings.checkpoints / "job.json"
    bench.settings.write(settings_file)
    arguments = {
        "settings_file": str(settings_file),
        "run_id": bench.run_id,
        "attempt": records.attempt,
        "config": bench.config.model_dump(mode="json"),
    }
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    shared |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    shared |= {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY)}
    return [
        subprocess.Popen(
            [sys.executable, "-c", CODE, json.dumps(arguments)],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]


@pytest.mark.slow
def test_two_workers_that_share_the_weights_train_serve_and_log_as_one(bench: Bench) -> None:
    workers = two_workers(bench, bench.begin(workers=2, run_ahead=1, data_parallel="fsdp2"))
    assert [worker.wait(220) for worker in workers] == [0, 0]
    run, steps = bench.outcome()
    assert run.state is RunState.DONE, run.error
    assert_whole(bench, steps)


@pytest.mark.slow
def test_killed_while_publishing_they_catch_up_and_one_worker_alone_ends_the_run(bench: Bench) -> None:
    begun = {"workers": 2, "run_ahead": 0, "data_parallel": "fsdp2"}
    for attempt, held_step in ((1, 1), (2, 2)):
        bench.peers.script.hold_publish = held_step
        bench.peers.held.clear()
        bench.peers.release.clear()
        workers = two_workers(bench, bench.begin(attempt=attempt, **begun))
        try:
            assert bench.peers.held.wait(200), f"the adapter of step {held_step} was never published"
        finally:
            for worker in workers:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
        bench.peers.script.hold_publish = None
        bench.peers.release.set()
    assert bench.train(bench.begin(attempt=3, workers=1, data_parallel="ddp")) == STEPS
    _, steps = bench.outcome()
    assert_whole(bench, steps)
