"""All engine replicas as one: who belongs, load and prove on each, unload from each, choose one for a request."""

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from services.inference import metrics
from services.inference.adapters.checks import AdapterRefused
from services.inference.adapters.probe import fault, measure
from services.inference.gateway import routing
from services.inference.gateway.replica import EngineRefused, EngineUnreachable, Replica
from shared.contracts.inference import AdapterKind, Pressure, Probe, ProbeResult, ReplicaState, ReplicaStatus

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """How requests are spread. Both count sequences: a request with n = 8 is 8."""

    in_flight: int
    """The most that one replica is given."""
    spill: int
    """How much busier than the least busy one the replica that holds a request's prompt may be."""


class Fleet:
    """The replicas of one base."""

    def __init__(self, base: str, noise_nats: float, limits: Limits) -> None:
        """Without replicas: `join` brings them."""
        self.base = base
        self._noise_nats = noise_nats
        self._limits = limits
        self._replicas: dict[str, Replica] = {}
        self._wanted: frozenset[str] = frozenset()
        """Ready adapters: a replica that lacks one is still being filled."""

    @property
    def replicas(self) -> list[Replica]:
        """Those that belong to the fleet; one that leaves does not."""
        return [replica for replica in self._replicas.values() if not replica.leaving]

    @property
    def state(self) -> str:
        """For people."""
        return "; ".join(replica.state for replica in self.replicas) or "no engine was found"

    def find(self, name: str) -> Replica | None:
        """The replica at host:port, leaving ones too."""
        return next((replica for replica in self._replicas.values() if replica.name == name), None)

    async def join(self, urls: Collection[str]) -> None:
        """Make `urls` the fleet. A new replica takes requests when it has every ready adapter; one that is no longer
        listed is closed when its requests have ended."""
        for url in urls:
            if url not in self._replicas:
                self._replicas[url] = Replica(url)
        for url, replica in list(self._replicas.items()):
            replica.leaving = url not in urls
            if replica.leaving and replica.in_flight == 0:
                del self._replicas[url]
                await replica.close()

    async def close(self) -> None:
        """Close every connection."""
        for replica in self._replicas.values():
            await replica.close()

    def serves(self, model: str) -> bool:
        """True when some replica serves `model` now."""
        return bool(self._able(model))

    def choose(self, model: str, key: str, sequences: int, avoid: Collection[Replica] = ()) -> Replica | None:
        """The replica for a request (`routing.choose`); None when all that serve `model` are full.

        The engines' prefix caches are apart by adapter, so prompts are spread apart by adapter too. Replicas to
        `avoid` are asked only when there is no other.
        """
        able = self._able(model)
        able = [replica for replica in able if replica not in avoid] or able
        key = f"{model}\0{key}"
        in_flight = {replica.url: replica.in_flight for replica in able}
        url = routing.choose(key, in_flight, sequences, self._limits.in_flight, self._limits.spill)
        if url is None:
            return None
        if url != routing.rendezvous(key, in_flight)[0]:
            metrics.SPILLS.inc()
        return self._replicas[url]

    def _able(self, model: str) -> list[Replica]:
        """Replicas that serve `model` now; those still being filled only when there is no other."""
        able = [replica for replica in self.replicas if replica.up and (model == self.base or model in replica.proven)]
        return [replica for replica in able if self._wanted <= replica.proven] or able

    def everywhere(self, name: str) -> bool:
        """True when each replica proved the adapter and answers; False without any replica."""
        return bool(self.replicas) and all(replica.up and name in replica.proven for replica in self.replicas)

    async def publish(self, name: str, folder: Path, probe: Probe, kind: AdapterKind) -> ProbeResult:
        """Load and prove on each replica at once; the worst result. Raises AdapterRefused, EngineUnreachable.

        It returns when every attempt has ended: nothing is still loading when the caller unloads.
        """
        replicas = self.replicas
        await asyncio.gather(*(replica.refresh() for replica in replicas if not replica.up))
        if not replicas or not all(replica.up for replica in replicas):
            raise EngineUnreachable(self.state)
        proofs = (self.prove(replica, name, folder, probe, kind) for replica in replicas)
        ended = await asyncio.gather(*proofs, return_exceptions=True)
        for result in ended:
            if isinstance(result, BaseException):
                raise result
        if not self.everywhere(name):
            raise EngineUnreachable(f"an engine was lost or joined while {name} was published: {self.state}")
        results = [result for result in ended if isinstance(result, ProbeResult)]
        return max(results, key=lambda result: result.served_minus_publisher)

    async def prove(self, replica: Replica, name: str, folder: Path, probe: Probe, kind: AdapterKind) -> ProbeResult:
        """Load unless loaded, compare log-probabilities. Raises AdapterRefused, EngineUnreachable."""
        started = time.perf_counter()
        try:
            if name not in replica.models:
                await replica.load(name, folder)
            loaded = time.perf_counter()
            served, base = await asyncio.gather(
                replica.logprobs(name, probe.sequences), replica.logprobs(self.base, probe.sequences)
            )
        except EngineRefused as error:
            raise AdapterRefused(f"the engine refused it: {error}") from error
        metrics.SWAP_SECONDS.labels("load").observe(loaded - started)
        metrics.SWAP_SECONDS.labels("probe").observe(time.perf_counter() - loaded)
        result = measure(probe, served, base)
        problem = fault(result, kind, probe.tolerance, self._noise_nats)
        if problem:
            raise AdapterRefused(problem)
        replica.proven.add(name)
        return result

    async def unload(self, name: str) -> None:
        """Unload from each replica; one that is away holds nothing to unload."""
        started = time.perf_counter()
        self._wanted -= {name}
        await asyncio.gather(*(self._unload(replica, name) for replica in self._replicas.values()))
        metrics.SWAP_SECONDS.labels("unload").observe(time.perf_counter() - started)

    async def refresh(self, wanted: Collection[str]) -> list[Replica]:
        """Look at each replica and unload what is not `wanted`; those that answer."""
        self._wanted = frozenset(wanted)
        replicas = self.replicas
        await asyncio.gather(*(replica.refresh() for replica in replicas))
        for replica in replicas:
            for stranger in replica.models - {self.base, *wanted}:
                await self._unload(replica, stranger)
        return [replica for replica in replicas if replica.up]

    async def _unload(self, replica: Replica, name: str) -> None:
        try:
            await replica.unload(name)
        except EngineUnreachable as error:
            log.warning("unload %s: %s", name, error)

    async def measure(self) -> None:
        """Ask each replica how busy it is, and tell Prometheus."""
        await asyncio.gather(*(replica.measure() for replica in self._replicas.values() if replica.up))
        for gauge in metrics.OF_REPLICAS:
            gauge.clear()  # a replica that left leaves no series behind
        for replica in self._replicas.values():
            status = self._status(replica)
            metrics.REPLICA_STATE.labels(replica.name, status.state).set(1)
            metrics.REPLICA_ADAPTERS.labels(replica.name).set(status.adapters)
            metrics.REPLICA_IN_FLIGHT.labels(replica.name).set(status.in_flight)
            metrics.REPLICA_WAITING.labels(replica.name).set(status.waiting)
            metrics.REPLICA_TOKENS.labels(replica.name).set(replica.engine_load.generated_tokens)

    def pressure(self) -> Pressure:
        """How busy the engines are, as last measured."""
        statuses = [self._status(replica) for replica in self._replicas.values()]
        serving = [status for status in statuses if status.state is ReplicaState.SERVING]
        return Pressure(
            replicas=statuses,
            serving=len(serving),
            running=sum(status.running for status in serving),
            waiting=sum(status.waiting for status in serving),
            kv_use=max((status.kv_use for status in serving), default=0.0),
        )

    def _status(self, replica: Replica) -> ReplicaStatus:
        missing = sorted(self._wanted - replica.proven)
        if replica.leaving:
            state, reason = ReplicaState.LEAVING, "discovery no longer lists it"
        elif not replica.up:
            state, reason = ReplicaState.AWAY, replica.state
        elif missing:
            state, reason = ReplicaState.RESTORING, f"it lacks {', '.join(missing)}"
        else:
            state, reason = ReplicaState.SERVING, ""
        return ReplicaStatus(
            replica=replica.name,
            state=state,
            reason=reason,
            adapters=len(replica.proven),
            in_flight=replica.in_flight,
            limit=self._limits.in_flight,
            running=replica.engine_load.running,
            waiting=replica.engine_load.waiting,
            kv_use=replica.engine_load.kv_use,
        )
