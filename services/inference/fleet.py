"""All engine replicas as one: load and prove on each, unload from each, choose one for a request."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from services.inference.checks import AdapterRefused
from services.inference.probe import fault, measure
from services.inference.replica import EngineRefused, EngineUnreachable, Replica
from shared.contracts.inference import AdapterKind, Probe, ProbeResult

log = logging.getLogger(__name__)


class Fleet:
    """The replicas of one base."""

    def __init__(self, replicas: Sequence[Replica], base: str, noise_nats: float) -> None:
        self.replicas = replicas
        self.base = base
        self._noise_nats = noise_nats

    @property
    def state(self) -> str:
        """For people."""
        return "; ".join(replica.state for replica in self.replicas)

    def choose(self, model: str) -> Replica | None:
        """The least loaded replica that serves `model` now."""
        able = [replica for replica in self.replicas if replica.up and (model == self.base or model in replica.proven)]
        return min(able, key=lambda replica: replica.in_flight, default=None)

    def everywhere(self, name: str) -> bool:
        """True when each replica proved the adapter."""
        return all(replica.up and name in replica.proven for replica in self.replicas)

    async def publish(self, name: str, folder: Path, probe: Probe, kind: AdapterKind) -> ProbeResult:
        """Load and prove on each replica; the worst result. Raises AdapterRefused, EngineUnreachable."""
        results = [await self.prove(replica, name, folder, probe, kind) for replica in self.replicas]
        return max(results, key=lambda result: result.served_minus_publisher)

    async def prove(self, replica: Replica, name: str, folder: Path, probe: Probe, kind: AdapterKind) -> ProbeResult:
        """Load unless loaded, compare log-probabilities. Raises AdapterRefused, EngineUnreachable."""
        try:
            if name not in replica.models:
                await replica.load(name, folder)
            served, base = await asyncio.gather(
                replica.logprobs(name, probe.sequences), replica.logprobs(self.base, probe.sequences)
            )
        except EngineRefused as error:
            raise AdapterRefused(f"the engine refused it: {error}") from error
        result = measure(probe, served, base)
        problem = fault(result, kind, probe.tolerance, self._noise_nats)
        if problem:
            raise AdapterRefused(problem)
        replica.proven.add(name)
        return result

    async def unload(self, name: str) -> None:
        """Unload from each replica; one that is away holds nothing to unload."""
        for replica in self.replicas:
            await self._unload(replica, name)

    async def refresh(self, wanted: Collection[str]) -> list[Replica]:
        """Look at each replica and unload what is not `wanted`; those that answer."""
        for replica in self.replicas:
            await replica.refresh()
            for stranger in replica.models - {self.base, *wanted}:
                await self._unload(replica, stranger)
        return [replica for replica in self.replicas if replica.up]

    async def _unload(self, replica: Replica, name: str) -> None:
        try:
            await replica.unload(name)
        except EngineUnreachable as error:
            log.warning("unload %s: %s", name, error)
