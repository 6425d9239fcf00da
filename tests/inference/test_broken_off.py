"""Deletions and publishes that go wrong in the middle: what was served before is left as it was."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from services.inference.adapters.fetching import Fetcher, Files
from services.inference.adapters.keeping import Keeping
from services.inference.adapters.publishing import Publisher
from services.inference.adapters.registry import Registry
from services.inference.adapters.repository import Repository
from services.inference.adapters.restoring import Restorer
from services.inference.adapters.slots import Slots
from services.inference.adapters.unloading import Unloader
from services.inference.gateway.fleet import Fleet, Limits
from shared.contracts.inference import AdapterRequest, AdapterState, Probe, ProbeResult, ProbeSequence
from shared.database import open_pool
from shared.egress import EgressRule
from shared.errors import Conflict, Invalid, NotFound
from shared.ids import parse_served_name
from tests.inference.test_checks import write_base

NAME = "run-s1-deadbeef"
PROBE = Probe(sequences=[ProbeSequence(token_ids=[1, 2], start=1, logprobs=[-1.0])])
REQUEST = AdapterRequest(uri="file:///first", base="base", digest="deadbeef" + "0" * 56, probe=PROBE)
PASSED = ProbeResult(served_minus_publisher=0.0, base_minus_publisher=1.0, served_minus_base=1.0, tokens=1)

BREAK_OFF = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()"""
"""Ends the connections that wait for a lock."""


@pytest.fixture
async def registry(control_db: str, tmp_path: Path) -> AsyncIterator[Registry]:
    """One ready adapter, in front of no engine."""
    fleet = Fleet("base", 1e-4, Limits(in_flight=8, spill=8))
    model = write_base(tmp_path / "base")
    fetcher, slots = Fetcher(tmp_path / "cache", str(model), 8, EgressRule((), "S")), Slots()
    async with open_pool(control_db) as pool:
        repository = Repository(pool)
        await repository.begin(NAME, parse_served_name(NAME), REQUEST, PROBE)
        await repository.loading(NAME, Files(tmp_path, "config", 2, translated=False))
        slots.add(await repository.ready(NAME, PASSED, 1.0))
        yield Registry(repository, fleet, fetcher, slots, Keeping(slots, 4), 4)


async def drained(registry: Registry) -> None:
    """The adapter turns new requests away."""
    while registry.slots.get(NAME) is not None:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)


async def test_the_database_breaks_off_a_deletion(registry: Registry, control_db: str) -> None:
    unloader = Unloader(registry, 10.0)
    slot = registry.slots.get(NAME)
    assert slot is not None
    with psycopg.connect(control_db) as locking, psycopg.connect(control_db, autocommit=True) as watching:
        with registry.slots.use(slot):
            deletion = asyncio.create_task(unloader.remove(NAME))
            await drained(registry)
            with pytest.raises(Conflict, match="being unloaded already"):
                await unloader.remove(NAME)
            locking.execute("LOCK TABLE inference.adapters")
        while not deletion.done():
            watching.execute(BREAK_OFF)
            await asyncio.sleep(0.02)
        locking.rollback()
    assert isinstance(deletion.exception(), psycopg.OperationalError)
    assert registry.slots.get(NAME) is slot
    await unloader.remove(NAME)
    with pytest.raises(NotFound):
        await registry.adapter(NAME)


async def test_a_deletion_is_given_up_while_it_waits_for_a_request(registry: Registry) -> None:
    unloader = Unloader(registry, 10.0)
    slot = registry.slots.get(NAME)
    assert slot is not None
    with registry.slots.use(slot):
        deletion = asyncio.create_task(unloader.remove(NAME))
        await drained(registry)
        deletion.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deletion
        assert registry.slots.get(NAME) is slot


async def test_a_publish_from_a_place_that_holds_nothing_leaves_what_is_known_of_the_name(registry: Registry) -> None:
    unloader = Unloader(registry, 10.0)
    publisher = Publisher(registry, unloader, Restorer(registry, unloader))
    before = await registry.repository.find(NAME)
    assert before is not None
    registry.slots.drop(NAME)  # it was served, and yielded its slot
    with pytest.raises(Invalid, match=r"second was refused.*its record is kept"):
        await publisher.publish(NAME, REQUEST.model_copy(update={"uri": "file:///second"}))
    assert await registry.repository.find(NAME) == before
    other = NAME.replace("run", "other")
    with pytest.raises(Invalid, match="It is loaded nowhere"):
        await publisher.publish(other, REQUEST)
    assert (await registry.adapter(other)).state is AdapterState.REFUSED


async def test_after_a_restart_the_oldest_of_those_nobody_asked_yet_yields_first(registry: Registry) -> None:
    repository = registry.repository
    for step in (2, 3):
        name = f"run-s{step}-deadbeef"
        await repository.begin(name, parse_served_name(name), REQUEST, PROBE)
        await repository.loading(name, Files(registry.fetcher.cache, "config", 2, translated=False))
        await repository.ready(name, PASSED, 1.0)
    slots = Slots()
    restarted = Registry(repository, registry.fleet, registry.fetcher, slots, Keeping(slots, 4), 4)
    await Restorer(restarted, Unloader(restarted, 10.0)).start()
    yielded = [await slots.close_least_recent(1.0) for _ in range(3)]
    assert [slot.record.name for slot in yielded if slot] == [f"run-s{step}-deadbeef" for step in (1, 2, 3)]
