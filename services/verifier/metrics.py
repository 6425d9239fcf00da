"""What the verifier exports besides HTTP metrics. No label holds text of a query."""

from prometheus_client import Counter, Gauge, Histogram

VERDICTS = Counter("sqlclimb_verdicts", "Verdicts given", ["status"])
VERIFY_SECONDS = Histogram(
    "sqlclimb_verify_seconds",
    "Duration of one verify request",
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)
SANDBOXES = Gauge("sqlclimb_sandboxes", "Sandboxes alive")
SANDBOX_STARTS = Histogram(
    "sqlclimb_sandbox_start_seconds",
    "From request to first query answered",
    buckets=(0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 20),
)
SANDBOX_REBUILDS = Counter("sqlclimb_sandbox_rebuilds", "Sandboxes rebuilt after their Postgres died")
GOLD_RESULTS = Counter("sqlclimb_gold_results", "Gold results needed, by whether the cache had them", ["cache"])
