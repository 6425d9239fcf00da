"""Drain and unload: no adapter leaves an engine while a request that names it is in flight."""

import logging

from services.inference import metrics
from services.inference.adapters.registry import Registry
from services.inference.adapters.repository import Record
from shared.contracts.inference import AdapterState
from shared.errors import Conflict, Unavailable

log = logging.getLogger(__name__)


class Unloader:
    """Takes adapters out of the engines."""

    def __init__(self, registry: Registry, drain_seconds: float) -> None:
        self._registry = registry
        self._drain_seconds = drain_seconds

    async def make_room(self) -> None:
        """Unload the least recently used adapters until a slot is free. Under the registry's lock.

        Raises Unavailable when all are kept or in use.
        """
        slots, most = self._registry.slots, self._registry.max_loras
        while len(slots) >= most:
            with metrics.SWAP_SECONDS.labels("drain").time():
                victim = await slots.close_least_recent(self._drain_seconds)
            if victim is None:
                kept = len(self._registry.keeping.loaded)
                raise Unavailable(
                    f"of {most} adapter slots (SQLCLIMB_MAX_LORAS) {kept} are pinned or named by an alias, "
                    "the others have requests in flight"
                )
            await self.retire(victim.record, f"its slot was needed: there are {most} (SQLCLIMB_MAX_LORAS)")

    async def retire(self, record: Record, reason: str) -> None:
        """Unload everywhere and delete its files. Under the registry's lock."""
        registry = self._registry
        registry.slots.drop(record.name)
        metrics.ADAPTERS_LOADED.set(len(registry.slots))
        await registry.fleet.unload(record.name)
        if record.folder is not None:
            await registry.fetcher.discard(record.folder)
        await registry.repository.leave(record.name, AdapterState.UNLOADED, reason)
        log.info("adapter unloaded", extra={"fields": {"adapter": record.name, "reason": reason}})

    async def remove(self, name: str) -> None:
        """Drain, unload, forget. Raises NotFound, Conflict when it is kept or requests do not end."""
        registry = self._registry
        await registry.adapter(name)
        if name in registry.keeping:
            raise Conflict(f"{name} is pinned or named by an alias: unpin it, or move the alias, first; it was kept")
        while True:
            slot = registry.slots.get(name)
            if slot is None and name in registry.slots:
                raise Conflict(f"{name} is being unloaded already")
            try:
                if slot is not None and not await registry.slots.drain(slot, self._drain_seconds):
                    raise Conflict(
                        f"{name} still has {slot.in_flight} requests in flight after {self._drain_seconds:g} s; "
                        "it was kept"
                    )
                async with registry.changing:
                    if registry.slots.get(name) is None:  # else it was published meanwhile
                        await self._forget(name)
                        return
            except BaseException:  # the database is away, the caller too: closed for ever it could not even be removed
                if slot is not None:
                    registry.slots.reopen(slot)
                raise

    async def _forget(self, name: str) -> None:
        record = await self._registry.repository.find(name)
        if record is not None:
            await self.retire(record, "removed")
        await self._registry.repository.forget(name)
