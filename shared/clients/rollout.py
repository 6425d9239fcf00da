"""Client of the rollout coordinator."""

from collections.abc import AsyncIterator

import httpx
from pydantic import TypeAdapter

from shared.clients.base import ServiceClient, raise_for_problem
from shared.contracts.rollout import (
    Band,
    BandRequest,
    BatchEnd,
    BatchGroup,
    BatchLine,
    BatchRequest,
    Delta,
    DeltaRequest,
    Report,
    Row,
    Sampling,
    SamplingRequest,
)

_BATCH_LINE: TypeAdapter[BatchGroup | BatchEnd] = TypeAdapter(BatchLine)


class RolloutClient(ServiceClient):
    """Samplings, training batches, reports, bands and deltas."""

    service = "rollout"

    async def start(self, request: SamplingRequest) -> Sampling:
        """Start or resume a sampling."""
        return await self.call("POST", "/v1/samplings", Sampling, request)

    async def sampling(self, sampling_id: str) -> Sampling:
        """How it stands."""
        return await self.call("GET", f"/v1/samplings/{sampling_id}", Sampling)

    async def cancel(self, sampling_id: str) -> Sampling:
        """Stop it; rows that landed stay."""
        return await self.call("DELETE", f"/v1/samplings/{sampling_id}", Sampling)

    async def rows(self, sampling_id: str) -> AsyncIterator[Row]:
        """Every row that has landed."""
        async for line in self._lines("GET", f"/v1/samplings/{sampling_id}/rows"):
            yield Row.model_validate_json(line)

    async def batch(self, request: BatchRequest) -> AsyncIterator[BatchGroup | BatchEnd]:
        """A training step's groups as they finish, then one BatchEnd. Needs the `train` scope.

        Raises ServiceProblem (409 for a fenced attempt) and httpx.TransportError when the stream is cut.
        """
        async for line in self._lines("POST", "/v1/batches", request.model_dump_json()):
            yield _BATCH_LINE.validate_json(line)

    async def report(self, sampling_id: str) -> Report:
        """Right at any time, also while the sampling runs."""
        return await self.call("GET", "/v1/reports", Report, params={"sampling": sampling_id})

    async def cut_band(self, request: BandRequest) -> Band:
        """Cut a band; the same id again answers the same band."""
        return await self.call("POST", "/v1/bands", Band, request)

    async def band(self, band_id: str) -> Band:
        """A band cut before."""
        return await self.call("GET", f"/v1/bands/{band_id}", Band)

    async def delta(self, request: DeltaRequest) -> Delta:
        """Two samplings, paired by task."""
        return await self.call("POST", "/v1/deltas", Delta, request)

    async def _lines(self, method: str, path: str, content: str | None = None) -> AsyncIterator[bytes]:
        headers = {} if content is None else {"content-type": "application/json"}
        timeout = httpx.Timeout(None, connect=5.0)
        async with self._http.stream(method, path, content=content, headers=headers, timeout=timeout) as response:
            if response.status_code >= 400:
                await response.aread()
            raise_for_problem(response)
            rest = b""
            async for chunk in response.aiter_bytes():  # `aiter_lines` also splits at U+0085 and such inside a reply
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield line
