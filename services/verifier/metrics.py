"""What the verifier exports besides HTTP metrics. No label holds text of a query.

The unscorable rate is `sqlclimb_verdicts_total{status="unscorable"}` over all statuses.
"""

from enum import StrEnum

from prometheus_client import Counter, Gauge, Histogram

from services.verifier.results import Source
from services.verifier.sandbox.protocol import Role
from shared.contracts.verifier import Status


class Phase(StrEnum):
    """What time is spent on."""

    REQUEST = "request"  # a verify request from its first turn in a slot to its verdicts
    PARSE = "parse"  # extraction and parsing of a request's statements and golds
    GOLD = "gold"  # all golds of a request, kept results and waits included
    EXECUTE = "execute"  # one statement on one seed in Postgres
    COMPARE = "compare"  # one candidate against its golds, executions left out


_VERDICTS = Counter("sqlclimb_verdicts", "Verdicts given", ["status"])
VERDICTS = {status: _VERDICTS.labels(status) for status in Status}

_PHASE_SECONDS = Histogram(
    "sqlclimb_verify_seconds",
    "Where verification spends its time",
    ["phase"],
    buckets=(0.0002, 0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)
PHASE_SECONDS = {phase: _PHASE_SECONDS.labels(phase) for phase in Phase}

_RESULTS = Counter("sqlclimb_results", "Results needed: kept before, joined in flight, or run", ["role", "source"])
RESULTS = {(role, source): _RESULTS.labels(role, source) for role in (Role.GOLD, Role.CANDIDATE) for source in Source}
RESULT_BYTES = Gauge("sqlclimb_result_cache_bytes", "Memory that kept results take, estimated", ["role"])
THREADS_WAITING = Gauge("sqlclimb_threads_waiting", "Threads of requests that wait for a free slot")
ITEMS_ADMITTED = Gauge("sqlclimb_items_admitted", "Items of requests that were accepted and not answered yet")
REQUESTS_REFUSED = Counter("sqlclimb_requests_refused", "Requests answered 429 because too many items waited")
SANDBOXES = Gauge("sqlclimb_sandboxes", "Sandboxes alive")
SANDBOX_STARTS = Histogram(
    "sqlclimb_sandbox_start_seconds",
    "From request to first query answered",
    buckets=(0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 20),
)
SANDBOX_REBUILDS = Counter("sqlclimb_sandbox_rebuilds", "Sandboxes rebuilt after their Postgres died")
