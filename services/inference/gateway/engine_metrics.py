"""The few numbers of vLLM's `/metrics` that the gateway acts on. Pure."""

import re
from dataclasses import dataclass

_NAMES = "num_requests_running|num_requests_waiting|kv_cache_usage_perc|generation_tokens_total"
_SAMPLE = re.compile(rf"^vllm:({_NAMES})(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)
"""Four of some 70 families: parsing all of them would cost milliseconds of every second."""


@dataclass(frozen=True)
class EngineLoad:
    """How busy an engine is."""

    running: int = 0
    """Sequences in its batch."""
    waiting: int = 0
    """Sequences in its queue."""
    kv_use: float = 0.0
    """Share of the KV cache in use, 0 to 1; the fullest of its data-parallel ranks."""
    generated_tokens: int = 0
    """Since its start."""


def read_load(text: str) -> EngineLoad:
    """From Prometheus' text format; what is not there is 0."""
    found: dict[str, list[float]] = {}
    for name, value in _SAMPLE.findall(text):
        found.setdefault(name, []).append(float(value))
    return EngineLoad(
        running=int(sum(found.get("num_requests_running", []))),
        waiting=int(sum(found.get("num_requests_waiting", []))),
        kv_use=max(found.get("kv_cache_usage_perc", []), default=0.0),
        generated_tokens=int(sum(found.get("generation_tokens_total", []))),
    )
