"""Whole attempts of a run: real training, real control database, peers over HTTP, kills and outages."""

import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.trainer.failures import Fenced, RunFailed
from services.trainer.job.records import RunRecords
from services.trainer.repository import RunRepository
from services.trainer.settings import JobSettings
from shared.artifacts import adapter_digest
from shared.contracts.inference import AdapterKind
from shared.contracts.run_config import RunConfig
from shared.contracts.trainer import EventKind, Run, RunState, Step
from shared.database import open_pool
from shared.ids import parse_served_name
from tests.models import make_model
from tests.trainer.peer_app import serving
from tests.trainer.peers import Peers
from tests.trainer.test_learner import run_config

RUN = "night"
STEPS = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


class Bench:
    """One run with everything around it."""

    def __init__(self, folder: Path, dsn: str, tokens: Path, peers: Peers) -> None:
        self.peers = peers
        self.dsn = dsn
        self.run_id = RUN
        self.stopped = ""
        self.records: RunRecords
        self.settings = JobSettings(
            db=dsn,
            artifacts=(folder / "artifacts").as_uri(),
            checkpoints=folder / "checkpoints",
            rollout_url=peers.url,
            inference_url=peers.url,
            tokens_file=tokens,
            learner_threads=1,
        )
        self.config = run_config(peers.model, steps=STEPS, run_ahead=0, refills=0)
        (folder / "artifacts").mkdir()

    def forget_checkpoints(self) -> None:
        """The next attempt finds none, as in a twin of this run that was never begun."""
        self.settings.checkpoints /= "twin"
        self.settings.artifacts += "/twin"

    def begin(self, attempt: int = 1, **changes: Any) -> RunRecords:
        """The runs API's part: the run exists at this attempt."""
        self.config = RunConfig.model_validate(self.config.model_dump() | changes)

        async def write() -> None:
            async with open_pool(self.dsn) as pool:
                repository = RunRepository(pool)
                if attempt == 1:
                    await repository.create(self.run_id, self.config)
                else:
                    assert await repository.next_attempt(self.run_id, attempt - 1, self.config)

        asyncio.run(write())
        self.records = RunRecords(self.dsn, self.run_id, attempt)
        self.records.begin({})
        return self.records

    def train(self, records: RunRecords) -> int:
        """One attempt in this process."""
        from services.trainer.job.attempt import Attempt

        attempt = Attempt(self.settings, self.config, records)
        done = attempt.run()
        self.stopped = attempt.watch.stopped
        return done

    def train_elsewhere(self, records: RunRecords) -> "subprocess.Popen[bytes]":
        """One attempt in a process of its own, as in a Ray Train worker."""
        settings_file = self.settings.checkpoints / "job.json"
        self.settings.write(settings_file)
        arguments = {
            "settings_file": str(settings_file),
            "run_id": self.run_id,
            "attempt": records.attempt,
            "config": self.config.model_dump(mode="json"),
        }
        code = "import json, sys; from services.trainer.job.worker import train_in_worker as train; "
        code += "train(json.loads(sys.argv[1]))"
        environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen([sys.executable, "-c", code, json.dumps(arguments)], env=environment)

    def outcome(self) -> tuple[Run, list[Step]]:
        """What the control database says."""

        async def read() -> tuple[Run, list[Step]]:
            async with open_pool(self.dsn) as pool:
                repository = RunRepository(pool)
                stored = await repository.find(self.run_id)
                assert stored is not None
                return stored.run, await repository.steps(self.run_id, 0)

        return asyncio.run(read())

    def stored_digest(self, name: str) -> str:
        """Digest of an adapter in the artifact store."""
        artifacts = Path(self.settings.artifacts.removeprefix("file://"))
        return adapter_digest(artifacts / "runs" / self.run_id / "adapters" / name)


@pytest.fixture
def bench(tmp_path: Path, control_db: str, tokens: Path, model: Path) -> Iterator[Bench]:
    with serving(model, tokens) as peers:
        yield Bench(tmp_path, control_db, tokens, peers)


def assert_whole(bench: Bench, steps: list[Step]) -> None:
    """All steps once, each drawn from the adapter of the step before it, the last one published and stored."""
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    ahead = bench.config.run_ahead
    assert {(run, step) for run, step, _ in bench.peers.batches} == {(RUN, step) for step in range(1, STEPS + 1)}
    policies = {request.step: (request.policy, request.adapter_digest) for request in bench.peers.requests}
    adapters = [("base", "base")] * (ahead + 1)
    adapters += [(f"{RUN}@{step.step}", bench.peers.adapters[step.adapter_name].digest) for step in steps]
    assert [policies[step.step] for step in steps] == adapters[:STEPS]
    for step in steps:
        assert parse_served_name(step.adapter_name).digest8 == bench.stored_digest(step.adapter_name)[:8]
        assert step.staleness == min(ahead, step.step - 1)
        assert step.logprob_gap < (0.05 if step.staleness else 1e-4)
        assert step.importance_ratio == pytest.approx(1.0, abs=0.05 if step.staleness else 1e-3)
        assert step.effective_sample_size is not None and 0.9 < step.effective_sample_size < 1.0 + 1e-6
        served, base = map(float, step.probe.split(" / "))
        assert served < base / 10
    assert set(bench.peers.adapters) == {step.adapter_name for step in steps}, "one adapter a step"


def test_a_run_trains_logs_and_publishes_every_step(bench: Bench) -> None:
    bench.peers.script.unavailable = 1
    bench.peers.script.unrouted = 1
    bench.peers.script.cut = 1
    bench.peers.script.lose = {(2, 0)}
    assert bench.train(bench.begin()) == STEPS
    _, steps = bench.outcome()
    assert_whole(bench, steps)
    assert [step.unscorable for step in steps] == [0, bench.config.prompts_per_step, 0]
    assert steps[0].kl == 0.0 and all(step.kl is not None and step.kl > 0 for step in steps[1:])
    asked = [request.step for request in bench.peers.requests]
    assert asked == [1, 1, 1, 1, 2, 3], "a refused, an unrouted and a cut batch are asked for again"
    assert all(request.temperature == 1.0 for request in bench.peers.requests)


@pytest.mark.parametrize("ahead", [1, pytest.param(0, marks=pytest.mark.slow)], ids=["one step ahead", "on-policy"])
def test_killed_while_sampling_it_resumes_and_ends_as_an_unkilled_twin(bench: Bench, ahead: int) -> None:
    """With refills: the killed run's second half draws the same prompts, refills and samples."""
    bench.peers.script.hold_batch = 3
    bench.peers.script.equal_tasks = {"t1", "t2", "t3"}
    process = bench.train_elsewhere(bench.begin(run_ahead=ahead, refills=2))
    try:
        assert bench.peers.held.wait(200), "step 3 was never asked for"
        deadline = time.monotonic() + 100
        while len(bench.outcome()[1]) < 2:  # one step ahead, step 2 learns while step 3 is sampled
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    bench.peers.script.hold_batch = None
    bench.peers.release.set()
    assert bench.train(bench.begin(attempt=2)) == STEPS
    _, steps = bench.outcome()
    assert_whole(bench, steps)
    assert [step.attempt for step in steps] == [1, 1, 2]
    assert sum(step.refilled for step in steps) >= 3, "every task that teaches nothing gave way"
    killed = steps[-1].adapter_name

    bench.forget_checkpoints()
    assert bench.train(RunRecords(bench.dsn, RUN, 2)) == STEPS
    _, steps = bench.outcome()
    assert steps[-1].adapter_name == killed, "the same samples, the same adapter to the last bit"


@pytest.mark.slow
def test_killed_while_publishing_the_next_attempt_publishes_and_logs_that_step(bench: Bench) -> None:
    bench.peers.script.hold_publish = STEPS
    process = bench.train_elsewhere(bench.begin())
    try:
        assert bench.peers.held.wait(200), "the last adapter was never published"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [step.step for step in bench.outcome()[1]] == [1, 2], "the last step is learnt but not logged yet"
    bench.peers.script.hold_publish = None
    bench.peers.release.set()
    bench.peers.adapters.clear()  # inference forgot: an idempotent publish brings back what is needed
    batches = dict(bench.peers.batches)
    assert bench.train(bench.begin(attempt=2)) == STEPS
    assert bench.peers.batches == batches, "nothing is sampled again"
    _, steps = bench.outcome()
    assert [(step.step, step.attempt) for step in steps] == [(1, 1), (2, 1), (3, 2)]
    assert list(bench.peers.adapters) == [steps[-1].adapter_name]


def test_a_first_step_without_anything_to_learn_publishes_a_control_and_goes_on(bench: Bench) -> None:
    bench.peers.script.equal_rewards = {1}
    assert bench.train(bench.begin()) == STEPS
    _, steps = bench.outcome()
    assert (steps[0].zero_variance, steps[0].grad_norm, steps[1].zero_variance) == (1.0, 0.0, 0.0)
    kinds = [bench.peers.adapters[step.adapter_name].kind for step in steps]
    assert kinds == [AdapterKind.CONTROL, AdapterKind.TRAINED, AdapterKind.TRAINED]


def stop_in_step_2(bench: Bench, records: RunRecords) -> None:
    """Train until somebody asks the run to stop while its second batch is drawn."""
    bench.peers.script.hold_batch = 2

    def ask_to_stop() -> None:
        assert bench.peers.held.wait(60)

        async def write() -> None:
            async with open_pool(bench.dsn) as pool:
                await RunRepository(pool).request_stop(RUN)

        asyncio.run(write())
        bench.peers.release.set()

    thread = threading.Thread(target=ask_to_stop)
    thread.start()
    assert bench.train(records) == 2
    thread.join()


def test_a_stop_ends_the_run_after_the_step_in_progress(bench: Bench) -> None:
    stop_in_step_2(bench, bench.begin())
    _, steps = bench.outcome()
    assert [step.step for step in steps] == [1, 2]
    assert steps[-1].adapter_name in bench.peers.adapters, "the last adapter is published"


def test_a_run_whose_disk_is_lost_goes_on_from_the_stores_copy_as_an_unbroken_twin(bench: Bench) -> None:
    stop_in_step_2(bench, bench.begin())
    shutil.rmtree(bench.settings.checkpoints)
    assert bench.train(bench.begin(attempt=2)) == STEPS
    _, steps = bench.outcome()
    assert [(step.step, step.attempt) for step in steps] == [(1, 1), (2, 1), (3, 2)]
    lost = [(step.adapter_name, step.loss) for step in steps]
    bench.forget_checkpoints()
    assert bench.train(RunRecords(bench.dsn, RUN, 2)) == STEPS
    assert [(step.adapter_name, step.loss) for step in bench.outcome()[1]] == lost, "to the last bit"


def test_checkpoints_of_another_run_of_that_name_are_refused(bench: Bench) -> None:
    stop_in_step_2(bench, bench.begin())
    bench.run_id = "night-2"
    source = Path(bench.settings.artifacts.removeprefix("file://")) / "runs"
    shutil.copytree(source / RUN, source / bench.run_id)
    with pytest.raises(RunFailed, match=r"newest checkpoint of run night-2 is of step 2, its log ends at step 0"):
        bench.train(bench.begin())


def test_an_attempt_that_was_overtaken_logs_nothing_more(bench: Bench) -> None:
    old = bench.begin()
    bench.peers.script.hold_batch = 2

    def overtake() -> None:
        assert bench.peers.held.wait(60)
        bench.begin(attempt=2)
        bench.peers.release.set()

    thread = threading.Thread(target=overtake)
    thread.start()
    with pytest.raises(Fenced, match="newer attempt than 1"):
        bench.train(old)
    thread.join()
    assert [step.step for step in bench.outcome()[1]] == [1]


def test_samples_of_another_policy_and_a_refused_adapter_end_the_run_in_a_sentence(bench: Bench) -> None:
    records = bench.begin()
    bench.peers.script.refuse_adapters = True
    with pytest.raises(RunFailed, match=r"37 tensors name no module of the base.*kept"):
        bench.train(records)
    bench.peers.script.refuse_adapters = False
    bench.peers.script.other_policy = True
    bench.peers.batches.clear()
    with pytest.raises(RunFailed, match="drawn by someone-else"):
        bench.train(records)
    run, steps = bench.outcome()
    assert run.state is RunState.RUNNING, "how it ended is the worker's to write"
    assert [step.step for step in steps] == [1], "the step whose adapter was refused is learnt, then served"


def test_a_store_that_cannot_be_written_ends_the_run_in_a_sentence(bench: Bench) -> None:
    run = Path(bench.settings.artifacts.removeprefix("file://")) / "runs" / RUN
    run.mkdir(parents=True)
    (run / "adapters").write_text("a file where the store should be")
    with pytest.raises(RunFailed, match=r"adapter of step 1 could not be stored.*make the store writable"):
        bench.train(bench.begin())


def test_shuffled_rewards_train_another_adapter_on_the_same_samples(bench: Bench) -> None:
    assert bench.train(bench.begin(rewards="shuffled", steps=1)) == 1
    (shuffled,) = bench.outcome()[1]
    scored = [sample.reward for group in bench.peers.batches[RUN, 1, 0] for sample in group.samples]
    assert shuffled.reward == pytest.approx(sum(filter(None, scored)) / len(scored))
    bench.forget_checkpoints()
    bench.config = bench.config.model_copy(update={"rewards": "verifier"})
    bench.train(RunRecords(bench.dsn, RUN, 1))
    assert bench.outcome()[1][0].adapter_name != shuffled.adapter_name


def test_a_run_that_starts_from_an_adapter_goes_on_from_it(bench: Bench) -> None:
    assert bench.train(bench.begin(steps=1, learning_rate=1e-2)) == 1
    first = bench.outcome()[1][0].adapter_name
    bench.run_id = "round-two"
    assert bench.train(bench.begin(start_from=f"{RUN}@1")) == 1
    (step,) = bench.outcome()[1]
    assert (bench.peers.requests[-1].policy, bench.peers.requests[-1].run_id) == (f"{RUN}@1", "round-two")
    assert step.logprob_gap < 1e-4, "the learner loaded what the engine serves"
    (warned,) = [event for event in bench.records.events() if event.kind is EventKind.WARNED]
    assert "band band was cut on base, the run starts from night@1" in warned.message
    assert step.kl is not None and step.kl > 0.0, "which is not the base"
    assert parse_served_name(step.adapter_name).digest8 != parse_served_name(first).digest8
    bench.run_id = "round-three"
    with pytest.raises(RunFailed, match=r"`lora.rank`: night@1 has rank 4, the run asks for 8; set it to 4"):
        bench.train(bench.begin(lora={"rank": 8, "alpha": 16}))


def test_an_update_that_broke_the_weights_is_not_kept_and_says_what_to_do(bench: Bench) -> None:
    records = bench.begin(learning_rate=1e30)
    with pytest.raises(RunFailed, match=r"step \d: .*is no finite number, so its update was not kept.*`learning_rate`"):
        bench.train(records)
    assert all(math.isfinite(step.loss) and math.isfinite(step.grad_norm) for step in bench.outcome()[1])


def test_a_kernel_that_is_missing_is_told_before_the_model_is_loaded(bench: Bench) -> None:
    with pytest.raises(RunFailed, match=r"`kernels`: no_such_kernel is not installed where the trainer runs"):
        bench.train(bench.begin(kernels=["json", "no_such_kernel"]))
    assert bench.peers.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("data_parallel", ["ddp", "fsdp2"])
def test_two_workers_of_a_job_train_serve_and_log_as_one(bench: Bench, data_parallel: str) -> None:
    bench.begin(workers=2, run_ahead=1, data_parallel=data_parallel)
    settings_file = bench.settings.checkpoints / "job.json"
    bench.settings.write(settings_file)
    command = [sys.executable, "-m", "services.trainer.job", "--run-id", RUN, "--attempt", "1"]
    environment = os.environ | {"RAY_ADDRESS": "local", "HF_HUB_OFFLINE": "1"}  # a Ray of its own
    done = subprocess.run([*command, "--settings", str(settings_file)], env=environment, timeout=250, check=False)
    run, steps = bench.outcome()
    assert (done.returncode, run.state) == (0, RunState.DONE), run.error
    assert_whole(bench, steps)
    assert not list(Path(bench.settings.artifacts.removeprefix("file://")).glob("runs/*/checkpoints"))
    told = [event.kind for event in bench.records.events()]
    assert told == [EventKind.STARTED, EventKind.ENDED], "by the first worker only"
