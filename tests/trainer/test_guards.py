"""Every guard fires on its own fault, planted in what the run is fed, and is silent on a healthy run.

The faults sit in the peers (engine, verifier, services); rows, rewards and figures are made of them as in any run.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from services.trainer.guards.curves import Curves
from services.trainer.guards.rules import GUARDS, Evidence, findings
from services.trainer.repository import RunRepository
from shared.auth import read_token
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.contracts.run_config import GuardAction, GuardName
from shared.contracts.trainer import CurvePoint, EventKind, RunEvent
from shared.database import open_pool
from tests.trainer.peers import Script
from tests.trainer.test_attempt import Bench, bench, model
from tests.trainer.test_records import step

__all__ = ["bench", "model"]  # fixtures

ALL_STEPS = range(1, 99)


@contextlib.contextmanager
def curves_read(bench: Bench) -> Iterator[None]:
    """The API beside the run: it reads what evaluations measured."""
    ended = threading.Event()

    async def read() -> None:
        token = read_token(bench.settings.tokens_file, "trainer")
        async with (
            open_pool(bench.dsn) as pool,
            RolloutClient(bench.peers.url, token) as rollout,
            InferenceClient(bench.peers.url, token) as inference,
        ):
            curves = Curves(RunRepository(pool), rollout, inference)
            while not ended.is_set():
                await curves.read()
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(read()))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def fired(bench: Bench) -> list[RunEvent]:
    """The guards' events, in order."""
    return [event for event in bench.records.events() if event.kind is EventKind.GUARD]


@pytest.mark.slow
def test_a_healthy_run_fires_none_tells_its_start_and_measures_its_checkpoints(bench: Bench) -> None:
    with curves_read(bench):
        assert bench.train(bench.begin(steps=4, refills=2, run_ahead=1, evaluation={"every": 2})) == 4
    assert fired(bench) == []
    assert [event.kind for event in bench.records.events()] == [EventKind.STARTED]
    measured = {f"night-s{step}-{kind}" for step in (2, 4) for kind in ("holdout", "trained")}
    assert set(bench.peers.evaluations) == measured | {"night-s0-holdout"}
    assert bench.peers.evaluations["night-s2-holdout"].policy == "night@2"


FAULTS: dict[GuardName, tuple[dict[str, Any], dict[str, Any]]] = {
    GuardName.ZERO_VARIANCE: ({"equal_rewards": set(ALL_STEPS)}, {"steps": 4}),
    GuardName.SYNC: ({"temperature": 0.4}, {}),
    GuardName.FIRST_REPLY: ({"turns": 2}, {}),
    GuardName.TRUNCATION: ({"ends": False}, {}),
    GuardName.BUDGET: ({"lose": {(step, 0) for step in ALL_STEPS}, "lose_reason": "timeout"}, {}),
    GuardName.UNSCORABLE: (
        {"lose": {(s, i) for s in ALL_STEPS for i in (0, 1)}},
        {"guards": {"unscorable": "warn", "zero_variance": "off"}},
    ),
    GuardName.NO_SQL: ({"prose": True}, {}),
    GuardName.HEADROOM: ({"greedy_base": True}, {"steps": 1}),
    GuardName.MEMORY: ({}, {"max_tokens": 10**9}),
    GuardName.STALLED: ({}, {"steps": 20, "learning_rate": 1e-9}),
}
IN_CI = (GuardName.ZERO_VARIANCE, GuardName.SYNC)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in IN_CI else pytest.mark.slow) for n in FAULTS])
def test_a_fault_upstream_fires_its_guard_alone(bench: Bench, name: GuardName) -> None:
    faults, changes = FAULTS[name]
    bench.peers.script = Script(**faults)
    settings: dict[str, Any] = {"steps": 3} | changes
    with curves_read(bench):
        done = bench.train(bench.begin(**settings))
    (event,) = fired(bench)
    assert event.guard is name
    expected = changes.get("guards", {}).get(name, GUARDS[name].action)
    assert event.action == expected
    assert f"guard `{name}`" in event.message and GUARDS[name].advice in event.message
    assert event.value is not None and event.limit is not None
    if event.action is GuardAction.STOP:
        assert bench.stopped == event.message and done < settings["steps"], "it ends after the step, or before any"
    else:
        assert bench.stopped == "" and done == settings["steps"], "told, and the run goes on"


@pytest.mark.slow
def test_a_guard_that_stops_is_told_to_warn_or_be_silent(bench: Bench) -> None:
    bench.peers.script = Script(temperature=0.4)
    assert bench.train(bench.begin(steps=2, guards={"sync": "warn"})) == 2
    assert [(event.guard, event.action) for event in fired(bench)] == [(GuardName.SYNC, GuardAction.WARN)], "told once"


@pytest.mark.slow
def test_a_guard_that_is_off_says_nothing(bench: Bench) -> None:
    bench.peers.script = Script(temperature=0.4)
    assert bench.train(bench.begin(steps=2, guards={"sync": "off"})) == 2
    assert fired(bench) == []


ON_THE_RULE = {GuardName.SERVED, GuardName.GENERALIZATION, GuardName.SATURATED}
"""Tested on the rule alone: a tiny model does not learn enough in a test's time for these faults to show."""


def test_every_guard_has_its_test_here() -> None:
    assert set(FAULTS) | ON_THE_RULE == set(GUARDS) == set(GuardName)


def judged(rewards: list[float], holdout: list[float], trained: list[float] | None = None) -> set[GuardName]:
    """What fires on a run of these rewards whose checkpoints, four steps apart, score so (95 % interval +-0.03)."""
    steps = [step(number, 1, reward).model_copy(update={"matched": reward}) for number, reward in enumerate(rewards, 1)]
    curve = [
        CurvePoint(step=4 * index, kind=kind, sampling_id="s", pass_at_1=score, low=score - 0.03, high=score + 0.03)
        for kind, scores in (("holdout", holdout), ("trained", trained or []))
        for index, score in enumerate(scores)
    ]
    return {finding.name for finding in findings(Evidence(steps, curve), {})}


RISING = [0.3 + 0.02 * number for number in range(12)]


def test_an_adapter_that_scores_as_the_base_where_it_trained_is_a_serving_fault() -> None:
    assert judged(RISING, [0.3, 0.4, 0.5], trained=[0.3, 0.1]) == set(), "0.26 apart is noise or regression"
    assert judged(RISING, [0.3, 0.4, 0.5], trained=[0.3, 0.3, 0.0]) == {GuardName.SERVED}


def test_training_that_rises_over_a_flat_holdout_does_not_generalise() -> None:
    assert judged(RISING, [0.30, 0.31, 0.30]) == {GuardName.GENERALIZATION}
    assert judged(RISING, [0.30, 0.40, 0.48]) == set()
    assert judged([0.4, 0.42, 0.41] * 4, [0.30, 0.31, 0.30]) == set(), "training has not risen either"


def test_checkpoints_that_no_longer_differ_are_saturated_once_they_have_climbed() -> None:
    assert judged(RISING, [0.30, 0.50, 0.505, 0.50]) == {GuardName.SATURATED}
    assert judged(RISING, [0.30, 0.40, 0.50, 0.55]) == set(), "still climbing"
    assert GuardName.SATURATED not in judged(RISING, [0.30, 0.31, 0.31, 0.30]), "it never climbed"
