"""Whole attempts of a supervised run: real training, real control database, peers over HTTP, kills."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from services.trainer.failures import Fenced, RunFailed
from services.trainer.guards.watch import Watch
from services.trainer.job.records import RunRecords
from services.trainer.job.remote import Remote
from services.trainer.repository import RunRepository
from services.trainer.settings import JobSettings
from services.trainer.small_policy.examples import prompt_ids
from services.trainer.supervised.encoding import open_encoder
from shared.contracts.inference import AdapterKind
from shared.contracts.rollout import Message
from shared.contracts.trainer import EventKind, RunState, Step
from shared.database import open_pool
from shared.ids import parse_served_name
from tests.trainer.peer_app import serving
from tests.trainer.peers import Peers
from tests.trainer.supervised.conftest import sft_config
from tests.trainer.supervised.sources import TASKS, Sources, gold, question, row
from tests.trainer.test_attempt import RUN, STEPS, Bench
from tests.trainer.test_learner import run_config
from tests.trainer.test_records import step as logged_step


class SftBench(Bench):
    """A supervised run with everything around it."""

    def __init__(self, folder: Path, settings: JobSettings, peers: Peers, model: Path, tokens: Path) -> None:
        super().__init__(folder / "bench", settings.db.get_secret_value(), tokens, peers)
        self.settings = settings
        self.config = sft_config(model)

    def train(self, records: RunRecords) -> int:
        from services.trainer.supervised.attempt import SupervisedAttempt

        attempt = SupervisedAttempt(self.settings, self.config, records)
        done = attempt.run()
        self.stopped = attempt.watch.stopped
        return done


@pytest.fixture
def bench(tmp_path: Path, control_db: str, tokens: Path, settings: JobSettings, model: Path) -> Iterator[SftBench]:
    with serving(model, tokens) as peers:
        (tmp_path / "bench").mkdir()
        whole = settings.model_copy(update={"db": SecretStr(control_db), "inference_url": peers.url})
        yield SftBench(tmp_path, whole, peers, model, tokens)


def assert_whole(bench: SftBench, steps: list[Step]) -> None:
    """All steps once, each served as it was trained and stored as it is served."""
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    for step in steps:
        assert parse_served_name(step.adapter_name).digest8 == bench.stored_digest(step.adapter_name)[:8]
        served, base = map(float, step.probe.split(" / "))
        assert served < base / 10
    assert set(bench.peers.adapters) == {step.adapter_name for step in steps}, "one adapter a step"
    assert {adapter.kind for adapter in bench.peers.adapters.values()} == {AdapterKind.TRAINED}


def files_below(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()


def test_a_run_learns_verified_replies_logs_and_publishes_every_step(bench: SftBench, sources: Sources) -> None:
    records = bench.begin(evaluation={"every": 2, "limit": 5})
    assert bench.train(records) == STEPS
    run, steps = bench.outcome()
    assert_whole(bench, steps)
    figures = [step.supervised for step in steps if step.supervised]
    assert len(figures) == STEPS and [figure.passes for figure in figures] == [0.4, 0.8, 1.2]
    assert steps[-1].loss < steps[0].loss and all(step.grad_norm > 0 for step in steps)
    assert all(figure.reply_tokens > 0 and 0 <= figure.token_accuracy <= 1 for figure in figures)
    assert all(step.seconds.total >= step.seconds.learn > 0 for step in steps)
    assert (run.last_policy, run.last_adapter) == (f"{RUN}@{STEPS}", steps[-1].adapter_name)
    assert [event.kind for event in records.events()] == [EventKind.STARTED]
    measured = {(request.policy, request.sampling_id) for request in sources.measured}
    assert measured == {("base", f"{RUN}-s0-holdout")} | {(f"{RUN}@{n}", f"{RUN}-s{n}-holdout") for n in (2, 3)}
    assert [point.step for point in run.curve] == [0, 2, 3]


@pytest.mark.slow
def test_killed_while_publishing_it_resumes_and_ends_as_an_unkilled_twin(bench: SftBench) -> None:
    bench.peers.script.hold_publish = 2
    process = bench.train_elsewhere(bench.begin(schedule="linear"))
    try:
        assert bench.peers.held.wait(200), "the second adapter was never published"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [step.step for step in bench.outcome()[1]] == [1], "the second step is learnt but not logged yet"
    bench.peers.script.hold_publish = None
    bench.peers.release.set()
    assert bench.train(bench.begin(attempt=2)) == STEPS
    _, steps = bench.outcome()
    assert_whole(bench, steps)
    assert [step.attempt for step in steps] == [1, 2, 2]
    killed = [(step.adapter_name, step.loss) for step in steps]

    bench.forget_checkpoints()
    assert bench.train(RunRecords(bench.dsn, RUN, 2)) == STEPS
    assert [(step.adapter_name, step.loss) for step in bench.outcome()[1]] == killed, "to the last bit"


def test_golds_are_learnt_and_left_nowhere(bench: SftBench, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = sft_config(bench.peers.model, golds=True)
    records = bench.begin(**config.model_dump(exclude={"model"}))
    assert bench.train(records) == STEPS
    _, steps = bench.outcome()
    assert_whole(bench, steps)
    tokenizer = open_encoder(config).tokenizer

    def encoded(number: int) -> list[int]:
        return prompt_ids(tokenizer, [Message(role="user", content=question(number))])

    golds = [gold(number) for number in range(TASKS)]
    tokens = [tokenizer.encode(text) for text in golds]
    for path, content in files_below(tmp_path):
        numbers = content.replace(b" ", b"")
        for text, ids in zip(golds, tokens, strict=True):
            assert text.encode() not in content, path
            assert ",".join(map(str, ids)).encode() not in numbers, (path, "a probe or a cache")
    seal = next(tmp_path.rglob("complete.json")).read_text()
    assert any(str(encoded(number))[1:-1] in seal for number in range(TASKS)), "what is looked for would be found"
    said = capfd.readouterr()
    assert not [text for text in golds if text in said.out + said.err]
    assert not [text for text in golds for step in steps if text in step.model_dump_json()]


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_ends_as_an_unbroken_twin(bench: SftBench) -> None:
    stop_after(bench, 1)
    assert bench.train(bench.begin(attempt=2)) == STEPS
    _, steps = bench.outcome()
    assert_whole(bench, steps)
    assert [step.attempt for step in steps] == [1, 2, 2]
    resumed = [(step.adapter_name, step.loss) for step in steps]

    bench.forget_checkpoints()
    assert bench.train(RunRecords(bench.dsn, RUN, 2)) == STEPS
    assert [(step.adapter_name, step.loss) for step in bench.outcome()[1]] == resumed, "to the last bit"


def test_a_resumed_run_whose_examples_have_changed_ends_in_a_sentence(bench: SftBench, sources: Sources) -> None:
    stop_after(bench, 1)
    sources.rows[0] = row(sources.tokenizer, 0, 0, reply="select max", token_ids=[9, *sources.rows[0].token_ids])
    with pytest.raises(RunFailed, match=r"the examples are not those that the run began with .* since step 1\)"):
        bench.train(bench.begin(attempt=2))
    assert [step.step for step in bench.outcome()[1]] == [1], "what was trained is kept"


def stop_after(bench: SftBench, step: int) -> None:
    """Train until the adapter of `step` is published, and stop the run then."""
    records = bench.begin()
    while_publishing(bench, step, lambda: stop(bench))
    assert bench.train(records) == step


def stop(bench: Bench) -> None:
    async def write() -> None:
        async with open_pool(bench.dsn) as pool:
            await RunRepository(pool).request_stop(RUN)

    asyncio.run(write())


def while_publishing(bench: SftBench, step: int, work: Any) -> None:
    """Do `work` while the adapter of `step` waits to be published."""
    bench.peers.script.hold_publish = step

    def act() -> None:
        assert bench.peers.held.wait(60)
        work()
        bench.peers.script.hold_publish = None
        bench.peers.release.set()

    threading.Thread(target=act, daemon=True).start()


def test_a_run_that_starts_from_an_adapter_goes_on_from_it(bench: SftBench) -> None:
    assert bench.train(bench.begin()) == STEPS
    learnt = bench.outcome()[1]
    bench.run_id = "round-two"
    assert bench.train(bench.begin(steps=1, start_from=f"{RUN}@{STEPS}")) == 1
    (again,) = bench.outcome()[1]
    assert again.loss < learnt[-1].loss < learnt[0].loss, "the same examples, already half known"
    assert parse_served_name(again.adapter_name).digest8 != parse_served_name(learnt[-1].adapter_name).digest8


def test_an_attempt_that_was_overtaken_logs_nothing_more(bench: SftBench) -> None:
    old = bench.begin()
    while_publishing(bench, 2, lambda: bench.begin(attempt=2))
    with pytest.raises(Fenced, match="newer attempt than 1"):
        bench.train(old)
    assert [step.step for step in bench.outcome()[1]] == [1]


def test_too_few_examples_end_the_run_before_the_model_is_loaded(bench: SftBench, sources: Sources) -> None:
    del sources.rows[6:]
    with pytest.raises(RunFailed, match=r"3 of 10 tasks give an example \(unscored 7\), a step takes 4"):
        bench.train(bench.begin())
    assert bench.peers.publishes == []


def test_the_guards_of_samples_say_nothing_of_a_supervised_run(bench: SftBench) -> None:
    """Its steps' rewards are 0 and never move, which in a GRPO run is a stall, and much else."""
    records = bench.begin()
    watch = Watch(bench.config, records, Remote(bench.settings))
    quiet = logged_step(1, 1).model_copy(update={"reward": 0.0, "zero_variance": 1.0, "kl": None, "logprob_gap": 9.0})
    assert [watch.after(quiet.model_copy(update={"step": number}), None) for number in range(1, 22)] == [False] * 21
    assert records.events() == []
    as_grpo = Watch(run_config(bench.peers.model), records, Remote(bench.settings))
    assert as_grpo.after(quiet, None), "guard `sync`, which would have fired"


@pytest.mark.slow
def test_two_workers_of_a_job_learn_what_one_learns(bench: SftBench) -> None:
    bench.begin(workers=2)
    settings_file = bench.settings.checkpoints / "job.json"
    bench.settings.write(settings_file)
    command = [sys.executable, "-m", "services.trainer.job", "--run-id", RUN, "--attempt", "1"]
    environment = os.environ | {"RAY_ADDRESS": "local", "HF_HUB_OFFLINE": "1"}  # a Ray of its own
    done = subprocess.run([*command, "--settings", str(settings_file)], env=environment, timeout=250, check=False)
    run, steps = bench.outcome()
    assert (done.returncode, run.state) == (0, RunState.DONE), run.error
    assert_whole(bench, steps)
    assert [event.kind for event in bench.records.events()] == [EventKind.STARTED, EventKind.ENDED]
    together = [(step.loss, step.grad_norm) for step in steps]

    bench.forget_checkpoints()
    bench.config = bench.config.model_copy(update={"workers": 1})
    assert bench.train(RunRecords(bench.dsn, RUN, 1)) == STEPS
    for both, step in zip(together, bench.outcome()[1], strict=True):
        assert both == pytest.approx((step.loss, step.grad_norm), rel=1e-4)
