"""Publish as a transaction: check, load on every engine, prove, flip to ready; on failure it is loaded nowhere."""

import asyncio
import logging
import time

from services.inference import metrics
from services.inference.adapters.base_model import BaseUnreadable
from services.inference.adapters.checks import AdapterRefused
from services.inference.adapters.fetching import Files
from services.inference.adapters.publish_rules import agree, check_request
from services.inference.adapters.registry import Registry
from services.inference.adapters.restoring import Restorer
from services.inference.adapters.unloading import Unloader
from services.inference.gateway.replica import EngineUnreachable
from shared.artifacts import StoreUnavailable
from shared.contracts.inference import Adapter, AdapterRequest, AdapterState, Probe
from shared.errors import Conflict, Invalid, ServiceError, Unavailable
from shared.ids import ServedName

log = logging.getLogger(__name__)

OUTCOMES = {409: "conflict", 422: "refused", 503: "unavailable"}


class Publisher:
    """Makes adapters ready."""

    def __init__(self, registry: Registry, unloader: Unloader, restorer: Restorer) -> None:
        self._registry = registry
        self._unloader = unloader
        self._restorer = restorer
        self._publishing: set[asyncio.Task[Adapter]] = set()

    async def publish(self, name: str, request: AdapterRequest) -> Adapter:
        """Make an adapter ready. Goes on to its end when the caller hangs up; asking again tells how it ended.

        Raises Invalid (refused, with the reason), Conflict (the name stands for other weights), Unavailable.
        """
        task = asyncio.create_task(self._publish(name, request))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)
        return await asyncio.shield(task)

    async def _publish(self, name: str, request: AdapterRequest) -> Adapter:
        started, outcome = time.perf_counter(), "failed"
        try:
            parts = check_request(name, request, self._registry.fleet.base)
            adapter = await self._publish_checked(name, parts, request)
            outcome = "ready"
            return adapter
        except ServiceError as error:
            outcome = OUTCOMES.get(error.status, outcome)
            raise
        finally:
            metrics.PUBLISHES.labels(outcome).inc()
            metrics.PUBLISH_SECONDS.observe(time.perf_counter() - started)

    async def _publish_checked(self, name: str, parts: ServedName, request: AdapterRequest) -> Adapter:
        registry = self._registry
        async with registry.changing:
            agree(await registry.repository.find(name), request)
            if name in registry.slots:
                return await self._already_served(name)
        try:  # not under the lock: a slow store must not keep a restarted engine empty
            with metrics.SWAP_SECONDS.labels("fetch").time():
                files = await registry.fetcher.fetch(name, request)
        except (BaseUnreadable, StoreUnavailable) as error:
            raise Unavailable(f"{error}. Nothing was loaded; put it again") from error
        except AdapterRefused as error:
            async with registry.changing:
                return await self._refused_unloaded(name, parts, request, error)
        async with registry.changing:
            try:
                return await self._load(name, parts, request, files)
            finally:
                await self._clear(name, files)

    async def _refused_unloaded(
        self, name: str, parts: ServedName, request: AdapterRequest, reason: AdapterRefused
    ) -> Adapter:
        """What came was refused. Where the name was served before, or is by now, that is left as it is."""
        registry = self._registry
        known = await registry.repository.find(name)
        probe = agree(known, request)
        if name in registry.slots:  # another call published it meanwhile, from elsewhere
            return await self._already_served(name)
        if known is not None and known.config_digest is not None:
            raise Invalid(f"{request.uri} was refused: {reason}. {name} is loaded nowhere; its record is kept")
        await registry.repository.begin(name, parts, request, probe)
        raise await self._refuse(name, reason) from reason

    async def _load(self, name: str, parts: ServedName, request: AdapterRequest, files: Files) -> Adapter:
        registry = self._registry
        known = await registry.repository.find(name)
        probe = agree(known, request)
        if name in registry.slots:  # another call published it meanwhile
            return await self._already_served(name)
        if known is not None and known.config_digest not in (None, files.config_digest):
            raise Conflict(
                f"{name} was served with another adapter_config.json, and the engines' cached prompts are of that one. "
                "Nothing was loaded; publish under a new name"
            )
        await registry.repository.begin(name, parts, request, probe)
        try:
            await self._bring_up(name, request, probe, files)
        except AdapterRefused as error:
            raise await self._refuse(name, error) from error
        except (EngineUnreachable, Unavailable) as error:
            await registry.repository.leave(name, AdapterState.UNLOADED, f"publish failed: {error}")
            raise Unavailable(f"{error}. {name} was not published; put it again") from error
        return await self._served_everywhere(name)

    async def _clear(self, name: str, files: Files) -> None:
        """What did not become ready, for whatever reason, is loaded nowhere; then its files go."""
        registry = self._registry
        if any(record.folder == files.folder for record in registry.slots.records):
            return
        if name not in registry.slots:
            await registry.fleet.unload(name)
        await registry.fetcher.discard(files.folder)

    async def _already_served(self, name: str) -> Adapter:
        if self._registry.slots.get(name) is None:
            raise Conflict(f"{name} is being unloaded; put it again when that has ended")
        await self._restorer.restore_all()
        return await self._served_everywhere(name)

    async def _served_everywhere(self, name: str) -> Adapter:
        adapter = await self._registry.adapter(name)
        if adapter.state is not AdapterState.READY:
            raise Unavailable(f"{name} is published, but not every engine serves it now: {self._registry.fleet.state}")
        return adapter

    async def _bring_up(self, name: str, request: AdapterRequest, probe: Probe, files: Files) -> None:
        """Load and prove on every replica, then ready. Raises AdapterRefused, EngineUnreachable, Unavailable."""
        registry = self._registry
        await self._unloader.make_room()
        await registry.repository.loading(name, files)
        started = time.perf_counter()
        result = await registry.fleet.publish(name, files.folder, probe, request.kind)
        load_ms = (time.perf_counter() - started) * 1000
        registry.slots.add(await registry.repository.ready(name, result, load_ms))
        registry.keeping.mark()
        metrics.ADAPTERS_LOADED.set(len(registry.slots))
        log.info("adapter ready", extra={"fields": {"adapter": name, "load_ms": load_ms, **result.model_dump()}})

    async def _refuse(self, name: str, reason: AdapterRefused) -> Invalid:
        await self._registry.repository.leave(name, AdapterState.REFUSED, str(reason))
        log.warning("adapter refused", extra={"fields": {"adapter": name, "reason": str(reason)}})
        return Invalid(f"adapter {name} was refused: {reason}. It is loaded nowhere")
