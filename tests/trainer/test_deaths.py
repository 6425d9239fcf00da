"""What the runs API makes of a job's death: another attempt by itself, as long as that gets anywhere."""

import asyncio
from typing import Any

import pytest

from services.trainer.job.records import RunRecords
from services.trainer.launching.launcher import JobState
from shared.contracts.trainer import RunState
from tests.trainer.runs_api import Api, api, model, peers
from tests.trainer.test_records import step

__all__ = ["api", "model", "peers"]  # fixtures


def work(api: Api, attempt: int, steps: int = 0) -> RunRecords:
    """The attempt's job is up and has logged the next steps."""
    records = RunRecords(api.dsn, "night", attempt)
    records.begin({"trl": "1.16.0"})
    done = len(records.steps())
    for number in range(done + 1, done + steps + 1):
        records.add_step(step(number, attempt))
    return records


def end(api: Api, attempt: int, job: JobState = JobState.FAILED) -> None:
    if job is JobState.MISSING:
        del api.launcher.jobs["night", attempt]
    else:
        api.launcher.jobs["night", attempt] = job


async def submitted(api: Api, attempt: int) -> dict[str, Any]:
    """The run once that attempt's job is submitted; the watch needs a moment."""
    for _ in range(200):
        if ("night", attempt) in api.launcher.jobs:
            run: dict[str, Any] = (await api.http.get("/v1/runs/night")).json()
            return run
        await asyncio.sleep(0.05)
    raise AssertionError(f"no attempt {attempt}: {api.launcher.jobs}")


@pytest.mark.parametrize(
    ("job", "words"),
    [(JobState.FAILED, "its job failed"), (JobState.MISSING, "Ray knows nothing of its job")],
)
async def test_a_run_whose_job_died_goes_on_by_itself_and_says_so(api: Api, job: JobState, words: str) -> None:
    await api.start()
    work(api, 1, steps=1)
    end(api, 1, job)
    run = await submitted(api, 2)
    assert (run["attempt"], run["state"], run["error"], run["steps_done"]) == (2, "pending", "", 1)
    (told,) = (await api.http.get("/v1/runs/night/events")).json()["events"]
    assert (told["kind"], told["step"], told["attempt"]) == ("restarted", 1, 2)
    assert words in told["message"] and "attempt 2 goes on" in told["message"]
    assert "Its log ends: MemoryError: 4 GB" in told["message"]
    assert "sqlclimb_run_restarts_total" in (await api.http.get("/metrics")).text


async def test_why_training_broke_is_told_of_the_restart_and_of_the_end(api: Api) -> None:
    await api.start(restarts=1)
    for attempt in (1, 2):
        work(api, attempt).broke("a training worker died: it was killed, or the machine ran out of memory")
        end(api, attempt)
        if attempt == 1:
            await submitted(api, 2)
    run = await api.state_after(RunState.FAILED)
    (told,) = (await api.http.get("/v1/runs/night/events")).json()["events"]
    assert told["message"].startswith("attempt 1 died: a training worker died")
    assert run["error"].startswith("attempt 2 died: a training worker died") and "MemoryError" in run["error"]


async def test_a_run_that_dies_again_and_again_without_a_step_fails_and_may_be_started_again(api: Api) -> None:
    await api.start(restarts=2)
    for attempt, steps in ((1, 0), (2, 0), (3, 2), (4, 0), (5, 0)):  # the third gets on: from there it counts anew
        await submitted(api, attempt)
        work(api, attempt, steps)
        end(api, attempt)
    run = await api.state_after(RunState.FAILED)
    assert run["attempt"] == 5 and "Steps up to 2" in run["error"] and "start the run again" in run["error"]
    resumed = (await api.start(restarts=2)).json()
    assert (resumed["attempt"], resumed["error"], resumed["versions"]) == (6, "", {"trl": "1.16.0"})
    end(api, 6)
    await submitted(api, 7)


@pytest.mark.parametrize("job", [JobState.ENDED, JobState.STOPPED])
async def test_a_job_that_somebody_ended_is_not_started_again(api: Api, job: JobState) -> None:
    await api.start()
    work(api, 1)
    end(api, 1, job)
    run = await api.state_after(RunState.FAILED)
    assert f"its job {job}" in run["error"] and list(api.launcher.jobs) == [("night", 1)]


async def test_a_run_that_was_to_stop_and_died_has_stopped(api: Api) -> None:
    await api.start()
    work(api, 1, steps=1)
    await api.http.post("/v1/runs/night/stop")
    end(api, 1)
    run = await api.state_after(RunState.STOPPED)
    assert "died" in run["error"] and list(api.launcher.jobs) == [("night", 1)]


async def test_what_the_job_wrote_about_its_end_stays(api: Api) -> None:
    await api.start()
    work(api, 1).finish(RunState.FAILED, "inference refused: 37 tensors")
    end(api, 1)
    await api.start("later", restarts=0)
    api.launcher.jobs["later", 1] = JobState.FAILED
    await api.state_after(RunState.FAILED, "later")  # the watch has looked at all runs since
    assert (await api.state_after(RunState.FAILED))["error"] == "inference refused: 37 tensors"
    assert set(api.launcher.jobs) == {("night", 1), ("later", 1)}


async def test_an_attempt_that_could_not_be_submitted_is_made_up_for(api: Api) -> None:
    await api.start()
    api.launcher.free.clear()
    api.launcher.submitting.clear()
    end(api, 1)
    await api.launcher.submitting.wait()  # attempt 2 is in the rows; its job is not
    api.launcher.reachable = False
    api.launcher.free.set()
    assert (await api.http.get("/v1/runs/night")).json()["attempt"] == 2
    assert list(api.launcher.jobs) == [("night", 1)]
    api.launcher.reachable = True
    assert (await submitted(api, 3))["attempt"] == 3
