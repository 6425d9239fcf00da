"""What the author counts for Prometheus. No label holds a question or a gold."""

from prometheus_client import Counter

CALLS = Counter("sqlclimb_author_calls", "Calls of a teacher's model", ["model", "purpose", "outcome"])
TOKENS = Counter("sqlclimb_author_tokens", "Tokens of a teacher's model", ["model", "kind"])
DOLLARS = Counter(
    "sqlclimb_author_dollars", "US dollars paid for a teacher's model, where its price is known", ["model"]
)
PROPOSALS = Counter("sqlclimb_author_proposals", "Questions judged, by reason or `passed`", ["teacher", "reason"])
