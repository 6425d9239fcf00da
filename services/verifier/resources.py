"""What the verifier holds while it runs."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from services.verifier.metrics import ITEMS_ADMITTED, REQUESTS_REFUSED
from services.verifier.sandbox.protocol import MAIN_SEED
from services.verifier.sandboxes import Sandboxes
from services.verifier.service import Verifier
from shared.contracts.verifier import BundleSource, Sandbox, SandboxRequest
from shared.domain import Bundle, BundleError, DomainSettings, find_bundle
from shared.errors import Busy, Invalid


class Backlog:
    """Counts items of requests that were accepted and not answered yet. For the event loop's thread."""

    def __init__(self, limit: int) -> None:
        """A request that brings the count over `limit` is refused, unless it is alone."""
        self._limit = limit
        self._items = 0

    @contextlib.contextmanager
    def admitted(self, items: int) -> Iterator[None]:
        """Raises Busy."""
        if self._items and self._items + items > self._limit:
            REQUESTS_REFUSED.inc()
            raise Busy(
                f"{self._items} items wait for a verdict, at most {self._limit} do (SQLCLIMB_QUEUE_ITEMS): repeat the "
                "call after the seconds that Retry-After says. Nothing was done"
            )
        self._items += items
        ITEMS_ADMITTED.set(self._items)
        try:
            yield
        finally:
            self._items -= items
            ITEMS_ADMITTED.set(self._items)


@dataclass(frozen=True)
class Resources:
    """Shared by all requests; opened and closed by the app's lifespan."""

    sandboxes: Sandboxes
    verifier: Verifier
    domains: Sequence[Path]
    requests: ThreadPoolExecutor
    """A thread for each request that is handled; further ones wait their turn."""
    backlog: Backlog
    """Keeps the further ones few enough to be answered before their callers give up."""

    def create_sandbox(self, request: SandboxRequest) -> Sandbox:
        """Raises a ServiceError."""
        bundle = self._named(request.domain) if request.domain is not None else inline_bundle(request.bundle)
        return self.sandboxes.create(request.sandbox_id, request.run_id, bundle)

    def _named(self, domain: str) -> Bundle:
        try:
            return find_bundle(domain, self.domains)
        except BundleError as error:
            raise Invalid(f"{error}. No sandbox was made") from error


def inline_bundle(source: BundleSource | None) -> Bundle:
    """A bundle that came with the request. Raises Invalid."""
    if source is None:
        raise Invalid("give exactly one of `domain` and `bundle`")
    if MAIN_SEED in source.variants:
        raise Invalid(f"a variant may not be called `{MAIN_SEED}`: that is the bundle's own seed")
    settings = DomainSettings(name=source.name, statement_timeout_seconds=source.statement_timeout_seconds)
    return Bundle(settings, source.schema_sql, source.seed_sql, variants=source.variants)
