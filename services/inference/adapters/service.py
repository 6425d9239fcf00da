"""Adapters: publish (check, load, prove, flip to ready), restore after an engine's restart, drain, unload.

Invariants: a name stands for one set of weights for ever; a request reaches a replica only under a name that was
proven in the engine process running there now; nothing falls through to base.
"""

import asyncio
import logging
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from services.inference import metrics
from services.inference.adapters.base_model import BaseUnreadable
from services.inference.adapters.checks import AdapterRefused
from services.inference.adapters.fetching import Fetcher, Files
from services.inference.adapters.keeping import Keeping
from services.inference.adapters.publish_rules import agree, check_request
from services.inference.adapters.repository import Record, Repository
from services.inference.adapters.slots import Slots
from services.inference.gateway.fleet import Fleet
from services.inference.gateway.replica import EngineUnreachable, Replica
from shared.artifacts import StoreUnavailable
from shared.contracts.inference import Adapter, AdapterList, AdapterRequest, AdapterState, Layout, Probe
from shared.errors import Conflict, Invalid, NotFound, ServiceError, Unavailable
from shared.ids import BASE_DIGEST, ServedName, parse_policy

log = logging.getLogger(__name__)

TEND_SECONDS = 1.0
"""How often the engines are looked at: a restarted one is found and filled within this."""

OUTCOMES = {409: "conflict", 422: "refused", 503: "unavailable"}


@dataclass(frozen=True)
class Target:
    """What a generation request asked for."""

    model: str
    """The engines' name for it: of an alias, what it names now."""
    digest: str
    policy: str
    """Label of metrics: `base` or the run."""
    use: AbstractContextManager[None]
    """Held while the request is in flight."""


class AdapterService:
    """The registry, and what the fleet holds of it."""

    def __init__(
        self, repository: Repository, fleet: Fleet, fetcher: Fetcher, max_loras: int, drain_seconds: float
    ) -> None:
        self.fleet = fleet
        self._repository = repository
        self._fetcher = fetcher
        self._max_loras = max_loras
        self._drain_seconds = drain_seconds
        self._slots = Slots()
        self.keeping = Keeping(self._slots, max_loras)
        self._lock = asyncio.Lock()  # one change of what is loaded at a time
        self._publishing: set[asyncio.Task[Adapter]] = set()
        self._reconciling: asyncio.Task[None] | None = None
        """Not begun yet."""

    async def start(self) -> None:
        """Take up what a predecessor left: its ready adapters are proven again before they serve."""
        await self._repository.abandon_loading()
        known = await self._repository.all()
        self.keeping.pin(record.name for record in known if record.adapter.pinned)
        newest_first = [record for record in known if record.adapter.state is AdapterState.READY]
        wanted = sorted(newest_first, key=lambda record: record.name not in self.keeping)
        for record in wanted[: self._max_loras]:
            self._slots.add(record)
        self.keeping.mark()
        for record in wanted[self._max_loras :]:
            await self._repository.leave(record.name, AdapterState.UNLOADED, "fewer slots after a restart")
        self._fetcher.keep_only({record.folder.name for record in self._slots.records if record.folder})

    async def tend(self) -> None:
        """For ever: look at the engines, restore what one has lost."""
        while True:
            try:
                await self.reconcile()
            except Exception:  # the database may be away: the next look may work
                log.exception("engines could not be looked at")
            await asyncio.sleep(TEND_SECONDS)

    async def adapters(self) -> AdapterList:
        """All adapters, newest first."""
        records = await self._repository.all()
        return AdapterList(
            base=self.fleet.base,
            model=self._fetcher.model,
            max_lora_rank=self._fetcher.max_rank,
            adapters=[self._shown(record) for record in records],
        )

    async def adapter(self, name: str) -> Adapter:
        """One adapter. Raises NotFound."""
        record = await self._repository.find(name)
        if record is None or record.removed:
            raise NotFound(f"no adapter {name!r} was published")
        return self._shown(record)

    def _shown(self, record: Record) -> Adapter:
        if record.adapter.state is not AdapterState.READY or self.fleet.everywhere(record.name):
            return record.adapter
        return record.adapter.model_copy(update={"state": AdapterState.RESTORING, "reason": self.fleet.state})

    def missing(self) -> list[str]:
        """Ready adapters that no replica serves now."""
        return [record.name for record in self._slots.records if not self.fleet.serves(record.name)]

    def models(self) -> list[str]:
        """The base, the ready adapters and the aliases."""
        return [self.fleet.base, *(record.name for record in self._slots.records), *self.keeping.aliases]

    async def target(self, model: str) -> Target:
        """What serves `model` or the alias. Raises NotFound for an unknown name, Conflict for one that is not ready."""
        model = self.keeping.aliases.get(model, model)
        if model == self.fleet.base:
            return Target(model, BASE_DIGEST, BASE_DIGEST, nullcontext())
        slot = self._slots.get(model)
        if slot is not None:
            adapter = slot.record.adapter
            return Target(model, adapter.digest, adapter.run_id, self._slots.use(slot))
        record = await self._repository.find(model)
        if record is None or record.removed:
            raise NotFound(f"no model {model!r} is served here; GET /v1/models lists them. Nothing was generated")
        state = record.adapter.state
        words = "being unloaded" if state is AdapterState.READY else f"{state} ({record.adapter.reason})"
        raise Conflict(f"adapter {model} is {words}; nothing was generated. PUT /v1/adapters/{model} serves it again")

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
            adapter = await self._publish_checked(name, check_request(name, request, self.fleet.base), request)
            outcome = "ready"
            return adapter
        except ServiceError as error:
            outcome = OUTCOMES.get(error.status, outcome)
            raise
        finally:
            metrics.PUBLISHES.labels(outcome).inc()
            metrics.PUBLISH_SECONDS.observe(time.perf_counter() - started)

    async def _publish_checked(self, name: str, parts: ServedName, request: AdapterRequest) -> Adapter:
        async with self._lock:
            probe = agree(await self._repository.find(name), request)
            if name in self._slots:
                return await self._already_served(name)
        try:  # not under the lock: a slow store must not keep a restarted engine empty
            with metrics.SWAP_SECONDS.labels("fetch").time():
                files = await self._fetcher.fetch(name, request)
        except (BaseUnreadable, StoreUnavailable) as error:
            raise Unavailable(f"{error}. Nothing was loaded; put it again") from error
        except AdapterRefused as error:
            async with self._lock:
                await self._repository.begin(name, parts, request, probe)
                raise await self._refuse(name, error) from error
        async with self._lock:
            return await self._load(name, parts, request, files)

    async def _load(self, name: str, parts: ServedName, request: AdapterRequest, files: Files) -> Adapter:
        try:
            known = await self._repository.find(name)
            probe = agree(known, request)
            if name in self._slots:  # another call published it meanwhile
                await self._fetcher.discard(files.folder)
                return await self._already_served(name)
            if known is not None and known.config_digest not in (None, files.config_digest):
                raise Conflict(
                    f"{name} was served with another adapter_config.json, and the engines' cached prompts are of that "
                    "one. Nothing was loaded; publish under a new name"
                )
        except ServiceError:
            await self._fetcher.discard(files.folder)
            raise
        await self._repository.begin(name, parts, request, probe)
        try:
            await self._bring_up(name, request, probe, files)
        except AdapterRefused as error:
            raise await self._refuse(name, error, files) from error
        except (EngineUnreachable, Unavailable) as error:
            await self.fleet.unload(name)
            await self._fetcher.discard(files.folder)
            await self._repository.leave(name, AdapterState.UNLOADED, f"publish failed: {error}")
            raise Unavailable(f"{error}. {name} was not published; put it again") from error
        return await self._served_everywhere(name)

    async def _already_served(self, name: str) -> Adapter:
        if self._slots.get(name) is None:
            raise Conflict(f"{name} is being unloaded; put it again when that has ended")
        await self._restore_all()
        return await self._served_everywhere(name)

    async def _served_everywhere(self, name: str) -> Adapter:
        adapter = await self.adapter(name)
        if adapter.state is not AdapterState.READY:
            raise Unavailable(f"{name} is published, but not every engine serves it now: {self.fleet.state}")
        return adapter

    async def _bring_up(self, name: str, request: AdapterRequest, probe: Probe, files: Files) -> None:
        """Load and prove on every replica, then ready. Raises AdapterRefused, EngineUnreachable, Unavailable."""
        await self._make_room()
        await self._repository.loading(name, files)
        started = time.perf_counter()
        result = await self.fleet.publish(name, files.folder, probe, request.kind)
        load_ms = (time.perf_counter() - started) * 1000
        self._slots.add(await self._repository.ready(name, result, load_ms))
        self.keeping.mark()
        metrics.ADAPTERS_LOADED.set(len(self._slots))
        log.info("adapter ready", extra={"fields": {"adapter": name, "load_ms": load_ms, **result.model_dump()}})

    async def _make_room(self) -> None:
        while len(self._slots) >= self._max_loras:
            with metrics.SWAP_SECONDS.labels("drain").time():
                victim = await self._slots.close_least_recent(self._drain_seconds)
            if victim is None:
                kept = len(self.keeping.loaded)
                raise Unavailable(
                    f"of {self._max_loras} adapter slots (SQLCLIMB_MAX_LORAS) {kept} are pinned or named by an alias, "
                    "the others have requests in flight"
                )
            await self._retire(victim.record, f"its slot was needed: there are {self._max_loras} (SQLCLIMB_MAX_LORAS)")

    async def _refuse(self, name: str, reason: AdapterRefused, files: Files | None = None) -> Invalid:
        if files is not None:
            await self.fleet.unload(name)
            await self._fetcher.discard(files.folder)
        await self._repository.leave(name, AdapterState.REFUSED, str(reason))
        log.warning("adapter refused", extra={"fields": {"adapter": name, "reason": str(reason)}})
        return Invalid(f"adapter {name} was refused: {reason}. It is loaded nowhere")

    async def _retire(self, record: Record, reason: str) -> None:
        self._slots.drop(record.name)
        metrics.ADAPTERS_LOADED.set(len(self._slots))
        await self.fleet.unload(record.name)
        if record.folder is not None:
            await self._fetcher.discard(record.folder)
        await self._repository.leave(record.name, AdapterState.UNLOADED, reason)
        log.info("adapter unloaded", extra={"fields": {"adapter": record.name, "reason": reason}})

    async def remove(self, name: str) -> None:
        """Drain, unload, forget. Raises NotFound, Conflict when it is kept or requests do not end."""
        await self.adapter(name)
        if name in self.keeping:
            raise Conflict(f"{name} is pinned or named by an alias: unpin it, or move the alias, first; it was kept")
        while True:
            slot = self._slots.get(name)
            if slot is None and name in self._slots:
                raise Conflict(f"{name} is being unloaded already")
            if slot is not None and not await self._slots.drain(slot, self._drain_seconds):
                raise Conflict(
                    f"{name} still has {slot.in_flight} requests in flight after {self._drain_seconds:g} s; it was kept"
                )
            async with self._lock:
                if self._slots.get(name) is None:  # else it was published meanwhile
                    record = await self._repository.find(name)
                    if record is not None:
                        await self._retire(record, "removed")
                    await self._repository.forget(name)
                    return

    async def pin(self, name: str, pinned: bool) -> Adapter:
        """Whether it may be unloaded to make room. Raises NotFound, Conflict when it is not served or slots run out."""
        await self.adapter(name)
        async with self._lock:
            if pinned:
                self.keeping.check_room(name)
            await self._repository.pin(name, pinned)
            if pinned:
                self.keeping.pin([name])
            else:
                self.keeping.unpin(name)
        return await self.adapter(name)

    async def serve_policy(self, policy: str) -> Adapter:
        """The adapter of a policy, ready and able to be kept. Raises NotFound, Conflict, Invalid, Unavailable."""
        wanted = parse_policy(policy)
        records = await self._repository.all()
        of_policy = [
            r for r in records if wanted and (r.adapter.run_id, r.adapter.step) == (wanted.run_id, wanted.step)
        ]
        if not of_policy:
            raise NotFound(f"no adapter of {policy} was published; `sqlclimb adapters list` shows those that were")
        adapter = await self.serve(of_policy[0].name)
        self.keeping.check_room(adapter.name)
        return adapter

    async def serve(self, name: str) -> Adapter:
        """Make a known adapter ready again. Raises as `publish`, and NotFound."""
        return await self.publish(name, _request_of(await self.adapter(name)))

    async def archive(self, name: str, layout: Layout) -> Path:
        """A tar of its files, for the caller to delete. Raises NotFound, Invalid, Unavailable."""
        known = await self.adapter(name)
        try:
            return await self._fetcher.archive(name, _request_of(known), layout)
        except AdapterRefused as error:
            raise Invalid(f"{name} cannot be served as it lies in {known.uri}: {error}") from error
        except (BaseUnreadable, StoreUnavailable) as error:
            raise Unavailable(f"{error}. Ask again") from error

    async def reconcile(self) -> None:
        """Make every replica that answers serve exactly the ready adapters.

        Callers that come before it has begun share it: hundreds of requests may ask for a lost engine at once.
        """
        if self._reconciling is None:
            self._reconciling = asyncio.create_task(self._reconcile())
        await asyncio.shield(self._reconciling)

    async def _reconcile(self) -> None:
        async with self._lock:
            self._reconciling = None
            await self._restore_all()

    async def _restore_all(self) -> None:
        for replica in await self.fleet.refresh([record.name for record in self._slots.records]):
            for record in self._slots.records:
                if record.name not in replica.proven:
                    await self._restore(replica, record)

    async def _restore(self, replica: Replica, record: Record) -> None:
        """Give an adapter back to a replica that lost it; one that fails its probe there is served no more."""
        try:
            if record.folder is None or not record.folder.is_dir():
                raise AdapterRefused(f"its files in {record.folder} are gone")
            await self.fleet.prove(replica, record.name, record.folder, record.probe, record.adapter.kind)
        except EngineUnreachable as error:
            log.warning("restoring %s: %s", record.name, error)
        except AdapterRefused as error:
            await self._retire(record, f"it could not be restored after a restart: {error}")
        else:
            metrics.RELOADS.inc()
            log.info("adapter restored", extra={"fields": {"adapter": record.name, "engine": replica.url}})


def _request_of(known: Adapter) -> AdapterRequest:
    return AdapterRequest.model_validate(known.model_dump(include={"uri", "base", "digest", "kind"}))
