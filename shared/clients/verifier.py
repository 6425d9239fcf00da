"""Client of the verifier."""

from shared.clients.base import ServiceClient
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

    async def explain(self, sandbox_id: str, request: ExplainRequest) -> Explanation:
        """Both results and the first difference."""
        return await self.call("POST", f"/v1/sandboxes/{sandbox_id}/explain", Explanation, request)
