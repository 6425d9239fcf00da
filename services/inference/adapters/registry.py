"""What is known of adapters and which of them are loaded: what publishing, restoring and unloading share."""

import asyncio
from dataclasses import dataclass, field

from services.inference.adapters.fetching import Fetcher
from services.inference.adapters.keeping import Keeping
from services.inference.adapters.repository import Record, Repository
from services.inference.adapters.slots import Slots
from services.inference.gateway.fleet import Fleet
from shared.contracts.inference import Adapter, AdapterList, AdapterState
from shared.errors import NotFound


@dataclass(frozen=True)
class Registry:
    """The rows, the ready adapters, their files and the engines they are loaded on."""

    repository: Repository
    fleet: Fleet
    fetcher: Fetcher
    slots: Slots
    keeping: Keeping
    max_loras: int
    """Slots of each engine."""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held for one change of what is loaded at a time."""

    async def adapters(self) -> AdapterList:
        """All adapters, newest first."""
        records = await self.repository.all()
        return AdapterList(
            base=self.fleet.base,
            model=self.fetcher.model,
            max_lora_rank=self.fetcher.max_rank,
            adapters=[self._shown(record) for record in records],
        )

    async def adapter(self, name: str) -> Adapter:
        """One adapter. Raises NotFound."""
        record = await self.repository.find(name)
        if record is None or record.removed:
            raise NotFound(f"no adapter {name!r} was published")
        return self._shown(record)

    def _shown(self, record: Record) -> Adapter:
        if record.adapter.state is not AdapterState.READY or self.fleet.everywhere(record.name):
            return record.adapter
        return record.adapter.model_copy(update={"state": AdapterState.RESTORING, "reason": self.fleet.state})
