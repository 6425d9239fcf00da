"""What the coordinator counts for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

from services.rollout.worker.groups import FailureReason

ROWS = Counter("sqlclimb_rollout_rows", "Rows landed in the ledger", ["status"])
REROLLS = Counter("sqlclimb_rollout_rerolls", "Samples asked for again", ["reason"])
LOSSES = Counter("sqlclimb_rollout_losses", "Samples given up", ["reason"])
for _reason in FailureReason:  # from 0 on: a rate misses the event that makes its series
    REROLLS.labels(_reason)
    LOSSES.labels(_reason)
PAUSES = Counter("sqlclimb_rollout_pauses", "Times that a sampling or batch began to wait for the infrastructure")
GROUPS_IN_FLIGHT = Gauge("sqlclimb_rollout_groups_in_flight", "Groups with the workers")
GROUPS_LIMIT = Gauge("sqlclimb_rollout_groups_limit", "Groups that may be with the workers, by the engines' pressure")
GROUP_SECONDS = Histogram(
    "sqlclimb_rollout_group_seconds",
    "One group from prompt to verdicts",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 1200),
)
