"""Client of the rollout coordinator."""

from collections.abc import AsyncIterator

from pydantic import TypeAdapter

from shared.clients.base import ServiceClient
from shared.contracts.measuring import Band, BandRequest, Delta, DeltaRequest, Replay, Report, Scan
from shared.contracts.rollout import (
    ENDPOINT_KEY_HEADER,
    BatchEnd,
    BatchGroup,
    BatchLine,
    BatchRequest,
    Row,
    Sampling,
    SamplingRequest,
    Samplings,
    VoidRequest,
)

_BATCH_LINE: TypeAdapter[BatchGroup | BatchEnd] = TypeAdapter(BatchLine)


class RolloutClient(ServiceClient):
    """Samplings, training batches, reports, bands and deltas."""

    service = "rollout"

    async def start(self, request: SamplingRequest, api_key: str | None = None) -> Sampling:
        """Start or resume a sampling; `api_key` is of its endpoint."""
        headers = {} if api_key is None else {ENDPOINT_KEY_HEADER: api_key}
        return await self.call("POST", "/v1/samplings", Sampling, request, headers=headers)

    async def sampling(self, sampling_id: str) -> Sampling:
        """How it stands."""
        return await self.call("GET", f"/v1/samplings/{sampling_id}", Sampling)

    async def samplings(self, limit: int = 100) -> Samplings:
        """Evaluations and bands, newest first."""
        return await self.call("GET", "/v1/samplings", Samplings, params={"limit": str(limit)})

    async def void(self, sampling_id: str, reason: str) -> Sampling:
        """Withdraw it from reports, bands and deltas."""
        return await self.call("POST", f"/v1/samplings/{sampling_id}/void", Sampling, VoidRequest(reason=reason))

    async def cancel(self, sampling_id: str) -> Sampling:
        """Stop it; rows that landed stay."""
        return await self.call("DELETE", f"/v1/samplings/{sampling_id}", Sampling)

    async def rows(self, sampling_id: str) -> AsyncIterator[Row]:
        """Every row that has landed."""
        async for line in self.lines("GET", f"/v1/samplings/{sampling_id}/rows"):
            yield Row.model_validate_json(line)

    async def batch(self, request: BatchRequest) -> AsyncIterator[BatchGroup | BatchEnd]:
        """A training step's groups as they finish, then one BatchEnd. Needs the `train` scope.

        Raises ServiceProblem (409 for a fenced attempt) and httpx.TransportError when the stream is cut.
        """
        async for line in self.lines("POST", "/v1/batches", request):
            yield _BATCH_LINE.validate_json(line)

    async def report(self, sampling_id: str) -> Report:
        """Right at any time, also while the sampling runs."""
        return await self.call("GET", "/v1/reports", Report, params={"sampling": sampling_id})

    async def scan(self, sampling_id: str) -> Scan:
        """Rewarded replies that may be reward hacking."""
        return await self.call("GET", f"/v1/samplings/{sampling_id}/scan", Scan)

    async def replay(self, row_id: int) -> Replay:
        """One verdict again, explained. Needs the `gold` scope."""
        return await self.call("POST", f"/v1/rows/{row_id}/replay", Replay)

    async def cut_band(self, request: BandRequest) -> Band:
        """Cut a band; the same id again answers the same band."""
        return await self.call("POST", "/v1/bands", Band, request)

    async def band(self, band_id: str) -> Band:
        """A band cut before."""
        return await self.call("GET", f"/v1/bands/{band_id}", Band)

    async def delta(self, request: DeltaRequest) -> Delta:
        """Samplings of two sides, paired by task."""
        return await self.call("POST", "/v1/deltas", Delta, request)
