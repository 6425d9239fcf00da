"""Client of the verifier."""

from collections.abc import AsyncIterator

import httpx
from pydantic import TypeAdapter

from shared.clients.base import ServiceClient, ServiceProblem
from shared.contracts.suites import SuiteFailure, SuiteLine, SuiteProgress, SuiteRequest, SuiteResult
from shared.contracts.verifier import (
    ExecuteRequest,
    ExecuteResponse,
    ExplainRequest,
    Explanation,
    Sandbox,
    SandboxRequest,
    VerifyRequest,
    VerifyResponse,
)

_SUITE_LINE: TypeAdapter[SuiteProgress | SuiteResult | SuiteFailure] = TypeAdapter(SuiteLine)


class VerifierClient(ServiceClient):
    """Sandboxes and verdicts. Needs the `gold` scope."""

    service = "verifier"

    async def create_sandbox(self, request: SandboxRequest) -> Sandbox:
        """A run's Postgres; the same id again answers the same sandbox."""
        return await self.call("POST", "/v1/sandboxes", Sandbox, request)

    async def delete_sandbox(self, sandbox_id: str) -> None:
        """Remove it; unknown ids are no error."""
        await self.send("DELETE", f"/v1/sandboxes/{sandbox_id}")

    async def verify(self, sandbox_id: str, request: VerifyRequest) -> VerifyResponse:
        """Verdicts in the order of the items."""
        return await self.call("POST", f"/v1/sandboxes/{sandbox_id}/verify", VerifyResponse, request)

    async def execute(self, sandbox_id: str, request: ExecuteRequest) -> ExecuteResponse:
        """Results of statements on every seed."""
        return await self.call("POST", f"/v1/sandboxes/{sandbox_id}/execute", ExecuteResponse, request)

    async def suite(self, request: SuiteRequest) -> AsyncIterator[SuiteProgress | SuiteResult]:
        """Make further seeds: progress lines, then the result. Leaving the loop ends the work.

        Raises ServiceProblem, also for a failure midway, and ServiceUnreachable when the stream is cut.
        """
        try:
            async for line in self.lines("POST", "/v1/suites", request):
                found = _SUITE_LINE.validate_json(line)
                if isinstance(found, SuiteFailure):
                    raise ServiceProblem(found.problem)
                yield found
        except httpx.TransportError as error:
            raise self.unreachable(error) from error

    async def explain(self, sandbox_id: str, request: ExplainRequest) -> Explanation:
        """Both results and the first difference."""
        return await self.call("POST", f"/v1/sandboxes/{sandbox_id}/explain", Explanation, request)
