"""What the verifier holds while it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from services.verifier.sandbox.protocol import MAIN_SEED
from services.verifier.sandboxes import Sandboxes
from services.verifier.service import Verifier
from shared.contracts.verifier import BundleSource, Sandbox, SandboxRequest
from shared.domain import Bundle, BundleError, DomainSettings, find_bundle
from shared.errors import Invalid


@dataclass(frozen=True)
class Resources:
    """Shared by all requests; opened and closed by the app's lifespan."""

    sandboxes: Sandboxes
    verifier: Verifier
    domains: Sequence[Path]
    requests: anyio.CapacityLimiter
    """Requests handled at once; further ones wait their turn."""

    def create_sandbox(self, request: SandboxRequest) -> Sandbox:
        """Raises a ServiceError."""
        bundle = self._named(request.domain) if request.domain is not None else _inline(request.bundle)
        return self.sandboxes.create(request.sandbox_id, request.run_id, bundle)

    def _named(self, domain: str) -> Bundle:
        try:
            return find_bundle(domain, self.domains)
        except BundleError as error:
            raise Invalid(f"{error}. No sandbox was made") from error


def _inline(source: BundleSource | None) -> Bundle:
    if source is None:
        raise Invalid("give exactly one of `domain` and `bundle`")
    if MAIN_SEED in source.variants:
        raise Invalid(f"a variant may not be called `{MAIN_SEED}`: that is the bundle's own seed")
    return Bundle(DomainSettings(name=source.name), source.schema_sql, source.seed_sql, variants=source.variants)
