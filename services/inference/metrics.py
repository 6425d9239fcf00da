"""The gateway's own metrics; a run's adapters share one label, so that labels do not grow with steps."""

from prometheus_client import Counter, Gauge, Histogram

PUBLISHES = Counter("sqlclimb_adapter_publishes", "Publishes by outcome", ["outcome"])
PUBLISH_SECONDS = Histogram(
    "sqlclimb_adapter_publish_seconds",
    "From the call to ready or refused",
    buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60),
)
GENERATIONS = Counter("sqlclimb_generations", "Generation requests by policy (`base` or the run)", ["policy", "status"])
ADAPTERS_LOADED = Gauge("sqlclimb_adapters_loaded", "Adapters that are ready now")
RELOADS = Counter("sqlclimb_adapter_reloads", "Adapters loaded again into an engine that had lost them")
