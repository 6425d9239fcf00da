"""After a restart of an engine or of the gateway: ready adapters are loaded and proven again before they serve."""

import asyncio
import logging

from services.inference import metrics
from services.inference.adapters.checks import AdapterRefused
from services.inference.adapters.registry import Registry
from services.inference.adapters.repository import Record
from services.inference.adapters.unloading import Unloader
from services.inference.gateway.replica import EngineUnreachable, Replica
from shared.contracts.inference import AdapterState

log = logging.getLogger(__name__)

TEND_SECONDS = 1.0
"""How often the engines are looked at: a restarted one is found and filled within this."""


class Restorer:
    """Makes the engines hold what the registry says is ready, and nothing else."""

    def __init__(self, registry: Registry, unloader: Unloader) -> None:
        self._registry = registry
        self._unloader = unloader
        self._reconciling: asyncio.Task[None] | None = None
        """Not begun yet."""

    async def start(self) -> None:
        """Take up what a predecessor left: its ready adapters are proven again before they serve."""
        registry = self._registry
        await registry.repository.abandon_loading()
        known = await registry.repository.all()
        registry.keeping.pin(record.name for record in known if record.adapter.pinned)
        newest_first = [record for record in known if record.adapter.state is AdapterState.READY]
        wanted = sorted(newest_first, key=lambda record: record.name not in registry.keeping)
        for record in reversed(wanted[: registry.max_loras]):  # of those nobody has asked yet, the oldest yields first
            registry.slots.add(record)
        registry.keeping.mark()
        for record in wanted[registry.max_loras :]:
            await registry.repository.leave(record.name, AdapterState.UNLOADED, "fewer slots after a restart")
        registry.fetcher.keep_only({record.folder.name for record in registry.slots.records if record.folder})

    async def tend(self) -> None:
        """For ever: look at the engines, restore what one has lost."""
        while True:
            try:
                await self.reconcile()
            except Exception:  # the database may be away: the next look may work
                log.exception("engines could not be looked at")
            await asyncio.sleep(TEND_SECONDS)

    async def reconcile(self) -> None:
        """Make every replica that answers serve exactly the ready adapters.

        Callers that come before it has begun share it: hundreds of requests may ask for a lost engine at once.
        """
        if self._reconciling is None:
            self._reconciling = asyncio.create_task(self._reconcile())
        await asyncio.shield(self._reconciling)

    async def _reconcile(self) -> None:
        async with self._registry.changing:
            self._reconciling = None
            await self.restore_all()

    async def restore_all(self) -> None:
        """As `reconcile`, at once. Under the registry's lock."""
        slots = self._registry.slots
        for replica in await self._registry.fleet.refresh([record.name for record in slots.records]):
            for record in slots.records:
                if record.name not in replica.proven:
                    await self._restore(replica, record)

    async def _restore(self, replica: Replica, record: Record) -> None:
        """Give an adapter back to a replica that lost it; one that fails its probe there is served no more."""
        try:
            if record.folder is None or not record.folder.is_dir():
                raise AdapterRefused(f"its files in {record.folder} are gone")
            await self._registry.fleet.prove(replica, record.name, record.folder, record.probe, record.adapter.kind)
        except EngineUnreachable as error:
            log.warning("restoring %s: %s", record.name, error)
        except AdapterRefused as error:
            await self._unloader.retire(record, f"it could not be restored after a restart: {error}")
        else:
            metrics.RELOADS.inc()
            log.info("adapter restored", extra={"fields": {"adapter": record.name, "engine": replica.url}})
