"""What the coordinator counts for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

ROWS = Counter("sqlclimb_rollout_rows", "Rows landed in the ledger", ["status"])
REROLLS = Counter("sqlclimb_rollout_rerolls", "Samples asked for again", ["reason"])
LOSSES = Counter("sqlclimb_rollout_losses", "Samples given up", ["reason"])
GROUPS_IN_FLIGHT = Gauge("sqlclimb_rollout_groups_in_flight", "Groups with the workers")
GROUP_SECONDS = Histogram(
    "sqlclimb_rollout_group_seconds",
    "One group from prompt to verdicts",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 1200),
)
