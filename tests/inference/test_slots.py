"""Which adapter yields its slot, and when."""

import asyncio
from contextlib import ExitStack

import pytest

from services.inference.adapters.repository import Record
from services.inference.adapters.slots import QUIET_SECONDS, Slots
from shared.contracts.inference import Adapter, AdapterKind, AdapterState, Probe, ProbeSequence

PROBE = Probe(sequences=[ProbeSequence(token_ids=[1, 2], start=1, logprobs=[-1.0])])


def slots_of(*names: str) -> Slots:
    slots = Slots()
    for name in names:
        fields = {"name": name, "run_id": "run", "step": 1, "uri": "file:///x", "base": "base", "digest": "d"}
        adapter = Adapter(**fields, kind=AdapterKind.TRAINED, state=AdapterState.READY)
        slots.add(Record(adapter, PROBE, None, None, removed=False))
    return slots


async def test_adapter_asked_longest_ago_is_closed() -> None:
    slots = slots_of("a", "b", "c")
    slots._slots["b"].last_asked -= 2 * QUIET_SECONDS
    slots._slots["c"].last_asked -= QUIET_SECONDS
    victim = await slots.close_least_recent(seconds=1.0)
    assert victim is not None
    assert victim.record.name == "b"
    assert slots.get("b") is None  # new requests are turned away at once


async def test_of_versions_in_use_the_one_that_came_first_yields() -> None:
    """Nobody asks every version every instant; the newest two of a run are in use all the same."""
    slots = slots_of("first", "second", "third")
    for name in ("second", "third", "first"):
        slot = slots.get(name)
        assert slot is not None
        with slots.use(slot):
            pass
    victim = await slots.close_least_recent(seconds=1.0)
    assert victim is not None
    assert victim.record.name == "first"


async def test_version_in_use_does_not_yield_because_it_is_idle_for_an_instant() -> None:
    slots = slots_of("old", "in use")
    old, used = slots.get("old"), slots.get("in use")
    assert old is not None
    assert used is not None
    with slots.use(old):
        with slots.use(used):
            pass
        waiting = asyncio.create_task(slots.close_least_recent(seconds=30.0))
        await asyncio.sleep(0)
        assert not waiting.done()  # `in use` is idle, but was asked last
    assert await waiting is old


async def test_idle_adapter_yields_when_the_oldest_does_not_end_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = slots_of("straggling", "idle")
    straggling = slots.get("straggling")
    assert straggling is not None
    monkeypatch.setattr("services.inference.adapters.slots.QUIET_SECONDS", 0.0)
    with slots.use(straggling):
        straggling.last_asked = 0.0
        victim = await slots.close_least_recent(seconds=30.0)
    assert victim is not None
    assert victim.record.name == "idle"


async def test_kept_adapter_is_never_closed_for_another() -> None:
    slots = slots_of("a", "b")
    slots.keep(["a"])
    victim = await slots.close_least_recent(seconds=1.0)
    assert victim is not None
    assert victim.record.name == "b"
    slots.drop("b")
    assert await slots.close_least_recent(seconds=60.0) is None  # at once: waiting would not help
    slots.keep([])
    assert await slots.close_least_recent(seconds=1.0) is slots._slots["a"]


async def test_adapter_with_requests_in_flight_is_waited_for() -> None:
    slots = slots_of("a")
    slot = slots.get("a")
    assert slot is not None
    with ExitStack() as requests:
        requests.enter_context(slots.use(slot))
        requests.enter_context(slots.use(slot))
        assert await slots.close_least_recent(seconds=0.01) is None
        waiting = asyncio.create_task(slots.close_least_recent(seconds=30.0))
        await asyncio.sleep(0)
        assert not waiting.done()
    assert await waiting is slot


async def test_drain_ends_with_the_last_request_and_gives_up_in_time() -> None:
    slots = slots_of("a")
    slot = slots.get("a")
    assert slot is not None
    with slots.use(slot):
        assert not await slots.drain(slot, seconds=0.01)
        assert slots.get("a") is slot  # it serves again
        draining = asyncio.create_task(slots.drain(slot, seconds=30.0))
        await asyncio.sleep(0)
        assert slots.get("a") is None
    assert await draining
