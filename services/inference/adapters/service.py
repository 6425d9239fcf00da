"""Adapters, as the endpoints and the gateway ask for them: what is served under a name, and every change of that.

Invariants: a name stands for one set of weights for ever; a request reaches a replica only under a name that was
proven in the engine process running there now; nothing falls through to base.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from services.inference.adapters.base_model import BaseUnreadable
from services.inference.adapters.checks import AdapterRefused
from services.inference.adapters.fetching import Fetcher
from services.inference.adapters.keeping import Keeping
from services.inference.adapters.publishing import Publisher
from services.inference.adapters.registry import Registry
from services.inference.adapters.repository import Repository
from services.inference.adapters.restoring import Restorer
from services.inference.adapters.slots import Slots
from services.inference.adapters.unloading import Unloader
from services.inference.gateway.fleet import Fleet
from shared.artifacts import StoreUnavailable
from shared.contracts.inference import Adapter, AdapterList, AdapterRequest, AdapterState, Layout
from shared.errors import Conflict, Invalid, NotFound, Unavailable
from shared.ids import BASE_DIGEST, parse_policy


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
        slots = Slots()
        self.keeping = Keeping(slots, max_loras)
        self._registry = Registry(repository, fleet, fetcher, slots, self.keeping, max_loras)
        self._unloader = Unloader(self._registry, drain_seconds)
        self._restorer = Restorer(self._registry, self._unloader)
        self._publisher = Publisher(self._registry, self._unloader, self._restorer)

    async def start(self) -> None:
        """Take up what a predecessor left: its ready adapters are proven again before they serve."""
        await self._restorer.start()

    async def tend(self) -> None:
        """For ever: look at the engines, restore what one has lost."""
        await self._restorer.tend()

    async def reconcile(self) -> None:
        """Make every replica that answers serve exactly the ready adapters."""
        await self._restorer.reconcile()

    async def adapters(self) -> AdapterList:
        """All adapters, newest first."""
        return await self._registry.adapters()

    async def adapter(self, name: str) -> Adapter:
        """One adapter. Raises NotFound."""
        return await self._registry.adapter(name)

    def missing(self) -> list[str]:
        """Ready adapters that no replica serves now."""
        return [record.name for record in self._registry.slots.records if not self.fleet.serves(record.name)]

    def models(self) -> list[str]:
        """The base, the ready adapters and the aliases."""
        return [self.fleet.base, *(record.name for record in self._registry.slots.records), *self.keeping.aliases]

    async def target(self, model: str) -> Target:
        """What serves `model` or the alias. Raises NotFound for an unknown name, Conflict for one that is not ready."""
        model = self.keeping.aliases.get(model, model)
        if model == self.fleet.base:
            return Target(model, BASE_DIGEST, BASE_DIGEST, nullcontext())
        slot = self._registry.slots.get(model)
        if slot is not None:
            adapter = slot.record.adapter
            return Target(model, adapter.digest, adapter.run_id, self._registry.slots.use(slot))
        record = await self._registry.repository.find(model)
        if record is None or record.removed:
            raise NotFound(f"no model {model!r} is served here; GET /v1/models lists them. Nothing was generated")
        state = record.adapter.state
        words = "being unloaded" if state is AdapterState.READY else f"{state} ({record.adapter.reason})"
        raise Conflict(f"adapter {model} is {words}; nothing was generated. PUT /v1/adapters/{model} serves it again")

    async def publish(self, name: str, request: AdapterRequest) -> Adapter:
        """Make an adapter ready. Raises Invalid, Conflict, Unavailable."""
        return await self._publisher.publish(name, request)

    async def remove(self, name: str) -> None:
        """Drain, unload, forget. Raises NotFound, Conflict when it is kept or requests do not end."""
        await self._unloader.remove(name)

    async def pin(self, name: str, pinned: bool) -> Adapter:
        """Whether it may be unloaded to make room. Raises NotFound, Conflict when it is not served or slots run out."""
        await self.adapter(name)
        async with self._registry.changing:
            if pinned:
                self.keeping.check_room(name)
            await self._registry.repository.pin(name, pinned)
            if pinned:
                self.keeping.pin([name])
            else:
                self.keeping.unpin(name)
        return await self.adapter(name)

    async def serve_policy(self, policy: str) -> Adapter:
        """The adapter of a policy, ready and able to be kept. Raises NotFound, Conflict, Invalid, Unavailable."""
        wanted = parse_policy(policy)
        records = await self._registry.repository.all()
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
            return await self._registry.fetcher.archive(name, _request_of(known), layout)
        except AdapterRefused as error:
            raise Invalid(f"{name} cannot be served as it lies in {known.uri}: {error}") from error
        except (BaseUnreadable, StoreUnavailable) as error:
            raise Unavailable(f"{error}. Ask again") from error


def _request_of(known: Adapter) -> AdapterRequest:
    return AdapterRequest.model_validate(known.model_dump(include={"uri", "base", "digest", "kind"}))
