"""The gateway's own metrics; a run's adapters share one label, so that labels do not grow with steps."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 1200)

PUBLISHES = Counter("sqlclimb_adapter_publishes", "Publishes by outcome", ["outcome"])
PUBLISH_SECONDS = Histogram(
    "sqlclimb_adapter_publish_seconds",
    "From the call to ready or refused",
    buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60),
)
SWAP_SECONDS = Histogram(
    "sqlclimb_adapter_swap_seconds",
    "Phases of a swap: fetch (and check the files), drain (wait for a slot), load and probe (of one replica), unload",
    ["phase"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
)
ADAPTERS_LOADED = Gauge("sqlclimb_adapters_loaded", "Adapters that are ready now")
RELOADS = Counter("sqlclimb_adapter_reloads", "Adapters loaded again into an engine that had lost them")

GENERATIONS = Counter("sqlclimb_generations", "Generation requests by policy (`base` or the run)", ["policy", "status"])
GENERATED_TOKENS = Counter(
    "sqlclimb_generated_tokens", "Tokens of replies by policy, of answers that tell their usage", ["policy"]
)
FIRST_TOKEN_SECONDS = Histogram(
    "sqlclimb_first_token_seconds", "From a streamed request to its first event", buckets=_SECONDS
)
GENERATION_SECONDS = Histogram(
    "sqlclimb_generation_seconds", "From a request to the end of its answer", buckets=_SECONDS
)
REFUSALS = Counter(
    "sqlclimb_generation_refusals", "Requests that the gateway itself answered with a problem", ["reason"]
)
RETRIES = Counter("sqlclimb_generation_retries", "Requests asked again because their replica died or lost the adapter")
SPILLS = Counter("sqlclimb_affinity_spills", "Requests sent past the replica that holds their prompt: it was too busy")

REPLICA_STATE = Gauge("sqlclimb_replica_state", "1 for the state that a replica is in", ["replica", "state"])
REPLICA_ADAPTERS = Gauge("sqlclimb_replica_adapters", "Adapters proven on a replica", ["replica"])
REPLICA_IN_FLIGHT = Gauge("sqlclimb_replica_in_flight", "Sequences that the gateway has at a replica", ["replica"])
REPLICA_WAITING = Gauge("sqlclimb_replica_waiting", "Sequences queued in a replica's engine", ["replica"])
REPLICA_TOKENS = Gauge(
    "sqlclimb_replica_generated_tokens", "Tokens that a replica's engine generated since its start", ["replica"]
)
OF_REPLICAS = (REPLICA_STATE, REPLICA_ADAPTERS, REPLICA_IN_FLIGHT, REPLICA_WAITING, REPLICA_TOKENS)
