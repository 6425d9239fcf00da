"""What a job writes, and that an older attempt writes nothing."""

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from services.trainer.failures import Fenced, RunFailed
from services.trainer.job.records import RunRecords
from services.trainer.repository import RunRepository
from shared.contracts.trainer import CodeVersion, RunState, Step, StepSeconds
from shared.database import open_pool
from tests.trainer.test_learner import run_config

CONFIG = run_config(Path("/models/tiny"))


def step(number: int, attempt: int, reward: float = 0.5) -> Step:
    return Step(
        step=number,
        reward=reward,
        reward_std=0.1,
        zero_variance=0.0,
        logprob_gap=1e-6,
        importance_ratio=1.0,
        kl=None,
        loss=0.0,
        grad_norm=1.0,
        completion_tokens=12.0,
        cut=0.0,
        unscorable=0,
        adapter_name=f"night-s{number}-01234567",
        probe="0 / 0.1",
        seconds=StepSeconds(sample=1.0, verify=0.1, learn=1.0, publish=0.1, total=2.2),
        attempt=attempt,
        at=datetime.now(UTC),
    )


@pytest.fixture
async def attempts(control_db: str) -> tuple[RunRecords, RunRecords]:
    """Attempt 1 of a run, fenced by attempt 2."""
    async with open_pool(control_db) as pool:
        repository = RunRepository(pool)
        assert await repository.create("night", CONFIG)
        first = RunRecords(control_db, "night", 1)
        first.begin({"trl": "1.16.0"})
        assert first.add_step(step(1, 1)) is False
        assert await repository.next_attempt("night", 1, CONFIG)
        assert not await repository.next_attempt("night", 1, CONFIG), "only one caller may begin the next attempt"
    return first, RunRecords(control_db, "night", 2)


async def test_an_older_attempt_writes_nothing(attempts: tuple[RunRecords, RunRecords], control_db: str) -> None:
    old, new = attempts
    new.begin({"trl": "1.16.0"})
    new.add_step(step(2, 2))
    for write in (
        lambda: old.add_step(step(2, 1, reward=0.0)),
        lambda: old.finish(RunState.FAILED, "late"),
        lambda: old.begin({}),
        old.stop_requested,
    ):
        with pytest.raises(Fenced, match="newer attempt than 1"):
            write()
    async with open_pool(control_db) as pool:
        repository = RunRepository(pool)
        stored = await repository.find("night")
        steps = await repository.steps("night", 0)
    assert stored is not None and stored.run.state is RunState.RUNNING and stored.run.error == ""
    assert [(found.step, found.attempt, found.reward) for found in steps] == [(1, 1, 0.5), (2, 2, 0.5)]
    assert (stored.run.steps_done, stored.run.last_policy) == (2, "night@2")
    assert stored.run.last_adapter == "night-s2-01234567"


async def test_each_attempt_keeps_what_it_ran(attempts: tuple[RunRecords, RunRecords], control_db: str) -> None:
    _, new = attempts
    code = CodeVersion(version="0.1.0", commit="a" * 40, dirty=True, image="registry/trainer:0.1.0")
    new.begin({"trl": "1.16.0"}, CodeVersion(version="0.0.9"))
    new.begin({"trl": "1.17.0"}, code)  # its job came up once more
    async with open_pool(control_db) as pool:
        stored = await RunRepository(pool).find("night")
    assert stored is not None
    first, second = stored.run.attempts
    assert (first.attempt, first.versions, first.code.commit) == (1, {"trl": "1.16.0"}, None)
    assert (second.attempt, second.versions, second.code) == (2, {"trl": "1.17.0"}, code)


async def test_a_step_logged_again_replaces_itself(attempts: tuple[RunRecords, RunRecords], control_db: str) -> None:
    _, new = attempts
    assert new.has_step(1) and not new.has_step(2)
    new.add_step(step(1, 2, reward=0.9))
    async with open_pool(control_db) as pool:
        steps = await RunRepository(pool).steps("night", 0)
    assert [(found.step, found.attempt, found.reward) for found in steps] == [(1, 2, 0.9)]


async def test_the_first_end_stays(attempts: tuple[RunRecords, RunRecords], control_db: str) -> None:
    _, new = attempts
    new.finish(RunState.FAILED, "the worker's own sentence")
    new.finish(RunState.FAILED, "the driver's guess")
    with pytest.raises(Fenced):
        new.begin({})
    async with open_pool(control_db) as pool:
        stored = await RunRepository(pool).find("night")
    assert stored is not None and stored.run.error == "the worker's own sentence" and stored.run.finished_at


async def test_a_stop_reaches_the_job_with_its_next_step(
    attempts: tuple[RunRecords, RunRecords], control_db: str
) -> None:
    _, new = attempts
    async with open_pool(control_db) as pool:
        await RunRepository(pool).request_stop("night")
    assert new.stop_requested()
    assert new.add_step(step(2, 2)) is True


def test_a_database_that_stays_away_fails_the_run_with_a_sentence() -> None:
    records = RunRecords("postgresql://nobody:secret@127.0.0.1:1/none", "night", 1, outage_seconds=0.3)
    with pytest.raises(RunFailed, match="gave no answer for 0 s") as failure:
        records.begin({})
    assert "secret" not in str(failure.value)
    with pytest.raises(psycopg.OperationalError):
        raise failure.value.__cause__ or AssertionError
