"""Which replica a request goes to: the one that has its prompt in the prefix cache, unless it is far busier. Pure.

Rendezvous hashing (Thaler and Ravishankar, 1996): each key orders the replicas by a hash of both, so that a replica
that leaves moves only its own keys, and one that comes back gets the same ones again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


def rendezvous(key: str, replicas: Iterable[str]) -> list[str]:
    """The replicas by preference for this key, best first."""
    return sorted(replicas, key=lambda replica: hashlib.sha256(f"{key}\0{replica}".encode()).digest(), reverse=True)


def choose(key: str, in_flight: Mapping[str, int], sequences: int, limit: int, spill: int) -> str | None:
    """The first replica in the key's order that is no more than `spill` sequences busier than the least busy one.

    `in_flight` is sequences by replica. Nothing goes where `sequences` more would pass `limit`, unless it is idle;
    None when no replica is left.
    """
    free = {name: busy for name, busy in in_flight.items() if busy == 0 or busy + sequences <= limit}
    if not free:
        return None
    least = min(free.values())
    return next(name for name in rendezvous(key, free) if free[name] - least <= spill)


def affinity_key(fields: Mapping[str, Any], group: str | None) -> str:
    """What requests of one prompt share: the caller's group, else the prompt itself.

    Of a chat, only the messages up to the first user turn count: a later turn finds its earlier ones cached.
    """
    if group:
        return group
    prompt = fields.get("prompt")
    messages = fields.get("messages")
    if prompt is None and isinstance(messages, list):
        prompt = _opening(messages)
    return json.dumps(prompt, sort_keys=True)


def _opening(messages: list[Any]) -> list[Any]:
    for place, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return messages[: place + 1]
    return messages
