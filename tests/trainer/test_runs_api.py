"""The runs API over HTTP: what it starts, resumes, stops and tells."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.trainer.job.records import RunRecords
from services.trainer.launching.launcher import JobState
from shared.auth import read_token
from shared.contracts.inference import Adapter, AdapterKind, AdapterState
from shared.contracts.rollout import SamplingRequest
from shared.contracts.run_config import GuardAction, GuardName
from shared.contracts.trainer import CurvePoint, EventKind, RunEvent, RunState
from tests.trainer.peers import Peers
from tests.trainer.runs_api import Api, api, model, peers
from tests.trainer.test_records import step

__all__ = ["api", "model", "peers"]  # fixtures


async def test_a_new_run_is_submitted_once(api: Api) -> None:
    first, again = await api.start(), await api.start()
    assert first.status_code == again.status_code == 200
    assert again.json()["attempt"] == 1 and list(api.launcher.jobs) == [("night", 1)]


async def test_simultaneous_starts_make_one_job(api: Api) -> None:
    answers = await asyncio.gather(*(api.start() for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert list(api.launcher.jobs) == [("night", 1)]


async def test_a_start_while_the_job_is_being_submitted_waits_for_it(api: Api) -> None:
    api.launcher.free.clear()
    first = asyncio.create_task(api.start())
    await api.launcher.submitting.wait()
    second = asyncio.create_task(api.start())
    await asyncio.wait({second}, timeout=0.5)  # time to make a second job, if it could
    api.launcher.free.set()
    assert [(await one).json()["attempt"] for one in (first, second)] == [1, 1]
    assert list(api.launcher.jobs) == [("night", 1)]


async def test_a_runs_last_figures_are_exported_a_little_longer_than_it_lives(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.start("dusk")  # of which no other test's service has shown a figure
    records = RunRecords(api.dsn, "dusk", 1)
    records.begin({})
    records.add_step(step(1, 1))
    records.finish(RunState.DONE)  # perhaps between two looks of the watch

    async def exported(wanted: str) -> str:
        """The newest step as `/metrics` says it; the watch needs a moment."""
        for _ in range(200):
            lines = (await api.http.get("/metrics")).text.splitlines()
            found = "".join(line for line in lines if line.startswith('sqlclimb_run_step{run="dusk"}'))
            if found.endswith(wanted) and bool(found) == bool(wanted):
                break
            await asyncio.sleep(0.05)
        return found

    assert await exported("1.0")
    monkeypatch.setattr("services.trainer.service.SHOWN_SECONDS", 0.0)
    assert await exported("") == ""


async def test_another_config_under_the_same_id_is_a_conflict_that_names_the_field(api: Api) -> None:
    await api.start()
    answer = await api.start(learning_rate=2e-3)
    assert answer.status_code == 409 and "learning_rate: 0.001 there, 0.002 here" in answer.json()["detail"]


async def test_workers_and_trackers_may_change_when_a_run_is_resumed(api: Api) -> None:
    await api.start(workers=2, data_parallel="fsdp2", restarts=0)
    api.launcher.jobs["night", 1] = JobState.FAILED
    await api.state_after(RunState.FAILED)
    resumed = (await api.start(workers=1, report_to=["tensorboard"])).json()
    assert (resumed["attempt"], resumed["config"]["workers"]) == (2, 1)
    assert resumed["config"]["report_to"] == ["tensorboard"]
    other = (await api.start(workers=2, k=8)).json()["detail"]
    assert "k: 4 there, 8 here" in other and "workers" not in other


async def test_a_run_that_is_done_is_answered_not_run_again(api: Api) -> None:
    await api.start()
    RunRecords(api.dsn, "night", 1).finish(RunState.DONE)
    assert (await api.start()).json()["state"] == "done"
    assert list(api.launcher.jobs) == [("night", 1)]


async def test_a_stop_reaches_a_running_job_and_ends_a_pending_one(api: Api) -> None:
    await api.start("pending")
    assert (await api.http.post("/v1/runs/pending/stop")).json()["state"] == "stopped"
    assert api.launcher.jobs["pending", 1] is JobState.STOPPED

    await api.start("night")
    records = RunRecords(api.dsn, "night", 1)
    records.begin({})
    assert (await api.http.post("/v1/runs/night/stop")).json()["state"] == "running"
    assert records.stop_requested()
    records.finish(RunState.STOPPED)
    assert (await api.start("night")).json()["attempt"] == 2, "a stopped run is unfinished"
    assert not RunRecords(api.dsn, "night", 2).stop_requested()


async def test_without_ray_nothing_starts_and_runs_stay_as_they_are(api: Api) -> None:
    await api.start("night")
    api.launcher.reachable = False
    answer = await api.start("other")
    assert answer.status_code == 503 and "no Ray there" in answer.json()["detail"]
    assert (await api.start("night")).status_code == 503
    await asyncio.sleep(0.2)
    assert (await api.http.get("/v1/runs/night")).json()["state"] == "pending"
    assert (await api.http.get("/v1/runs/other")).json()["state"] == "failed"
    api.launcher.reachable = True
    assert (await api.start("other")).json()["attempt"] == 2


async def test_steps_come_after_the_asked_one(api: Api) -> None:
    await api.start()
    records = RunRecords(api.dsn, "night", 1)
    records.begin({})
    for number in (1, 2, 3):
        records.add_step(step(number, 1))
    found = (await api.http.get("/v1/runs/night/steps", params={"after": 1})).json()["steps"]
    assert [entry["step"] for entry in found] == [2, 3]


@pytest.mark.parametrize("call", [("POST", "/v1/runs"), ("GET", "/v1/runs/x/steps"), ("POST", "/v1/runs/x/stop")])
async def test_who_may_call(api: Api, call: tuple[str, str], tokens: Path) -> None:
    method, path = call
    headers = ("", "Bearer nobody", f"Bearer {read_token(tokens, 'rollout')}")
    answers = [
        (await api.http.request(method, path, headers={"authorization": header})).status_code for header in headers
    ]
    assert answers == [401, 401, 403]


async def test_unknown_runs_are_404(api: Api) -> None:
    for method, path in (("GET", "/v1/runs/x"), ("GET", "/v1/runs/x/steps"), ("POST", "/v1/runs/x/stop")):
        assert (await api.http.request(method, path)).status_code == 404


async def test_a_run_is_listed_and_tells_what_happened(api: Api) -> None:
    await api.start("night")
    await api.start("day")
    records = RunRecords(api.dsn, "night", 1)
    records.begin({})
    event = RunEvent(kind=EventKind.PAUSED, message="no verifier", step=3, attempt=1, at=datetime.now(UTC))
    records.add_event(event)
    assert [run["run_id"] for run in (await api.http.get("/v1/runs", params={"limit": 5})).json()["runs"]] == [
        *("day", "night")
    ]
    (told,) = (await api.http.get("/v1/runs/night/events")).json()["events"]
    assert (told["kind"], told["message"], told["step"]) == ("paused", "no verifier", 3)
    assert (await api.http.get("/v1/runs/night/log")).json()["tail"] == "MemoryError: 4 GB"


async def test_a_run_that_a_guard_stopped_goes_on_under_other_guards_but_no_other_config(api: Api) -> None:
    await api.start()
    records = RunRecords(api.dsn, "night", 1)
    records.begin({})
    records.finish(RunState.STOPPED, "guard `zero_variance`: …")
    assert (await api.start(steps=99, guards={"zero_variance": "warn"})).status_code == 409
    again = await api.start(guards={"zero_variance": "warn"})
    assert again.status_code == 200 and again.json()["attempt"] == 2
    assert RunRecords(api.dsn, "night", 2).begin({}).guards == {GuardName.ZERO_VARIANCE: GuardAction.WARN}
    assert (await api.http.post("/v1/runs/night/resume")).json()["attempt"] == 2, "it is at work"


async def measured(api: Api) -> dict[str, Any]:
    """The run's one evaluation, once it has its result."""
    for _ in range(200):
        (point,) = (await api.http.get("/v1/runs/night")).json()["curve"]
        if point["pass_at_1"] is not None:
            found: dict[str, Any] = point
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"not measured: {point}")


async def test_an_evaluation_is_read_when_it_is_done(api: Api, peers: Peers) -> None:
    await api.start()
    records = RunRecords(api.dsn, "night", 1)
    records.begin({})
    request = SamplingRequest(sampling_id="night-s0-holdout", domain="shop")
    peers.evaluations[request.sampling_id], peers.reports[request.sampling_id] = request, peers.evaluate(request)
    records.queue_evaluation(CurvePoint(step=0, sampling_id=request.sampling_id))
    point = await measured(api)
    assert point["low"] <= point["pass_at_1"] <= point["high"]


async def test_an_evaluation_whose_adapter_lost_its_slot_has_it_served_again(api: Api, peers: Peers) -> None:
    await api.start()
    records = RunRecords(api.dsn, "night", 1)
    records.begin({})
    name = "night-s1-01234567"
    peers.adapters[name] = Adapter(
        name=name,
        run_id="night",
        step=1,
        uri="file:///adapters/1",
        base="base",
        digest="0" * 64,
        kind=AdapterKind.TRAINED,
        state=AdapterState.UNLOADED,
    )
    request = SamplingRequest(sampling_id="night-s1-holdout", domain="shop", policy="night@1")
    peers.evaluations[request.sampling_id] = request
    records.queue_evaluation(CurvePoint(step=1, sampling_id=request.sampling_id))
    for _ in range(200):
        if peers.publishes:
            break
        await asyncio.sleep(0.05)
    base = request.model_copy(update={"policy": "base"})  # the adapter has no files to be evaluated
    peers.reports[request.sampling_id] = peers.evaluate(base)
    await measured(api)
    assert peers.publishes == [name], "once: it is served now"


async def test_a_plan_is_made_of_the_bands_own_replies_and_starts_nothing(api: Api) -> None:
    answer = await api.http.post("/v1/plans", json={"config": api.config})
    plan = answer.json()
    assert answer.status_code == 200 and plan["band_prompts"] == 10 and plan["samples_per_step"] == 16
    assert api.launcher.jobs == {}
    for changes, preset, words in (
        ({}, "qwen9", "no preset 'qwen9'; there are llama-8b-1gpu"),
        ({"band_id": "nowhere"}, None, "no band 'nowhere'"),
        ({"model": "Qwen/Qwen3-4B"}, None, "give its folder, or a preset"),
    ):
        body = {"config": api.config | changes} | ({"preset": preset} if preset else {})
        refused = await api.http.post("/v1/plans", json=body)
        assert refused.status_code == 422 and words in refused.json()["detail"]
    assert "recipe-r5" in [preset["name"] for preset in (await api.http.get("/v1/presets")).json()["presets"]]
