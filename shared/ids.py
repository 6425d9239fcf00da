"""Identities: task ids, splits, served names, policies. Pure functions; the rules are the design's section 3."""

import hashlib
import re
from dataclasses import dataclass

from shared.contracts.tasks import Split

HOLDOUT_SHARE = 0.2
BASE_POLICY = "base"
BASE_DIGEST = "base"
"""Stands where an adapter digest would, when no adapter was applied."""

ENDPOINT_DIGEST = "endpoint"
"""The same, for a model that somebody else serves."""

_SERVED_NAME = re.compile(r"(?P<run>[A-Za-z0-9][A-Za-z0-9._@-]{0,127})-s(?P<step>[0-9]{1,9})-(?P<digest8>[0-9a-f]{8})")


def sha256_hex(text: str) -> str:
    """SHA-256 of the UTF-8 text, lower-case hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def task_id(question: str) -> str:
    """`"t2s_" + sha256(question.strip().lower())[:12]`."""
    return "t2s_" + sha256_hex(question.strip().lower())[:12]


def split_of(split_key: str) -> Split:
    """Holdout for the fifth of the keys whose hash is smallest; every phrasing of one gold shares its key."""
    position = int(sha256_hex(split_key)[:8], 16) / 0xFFFFFFFF
    return Split.HOLDOUT if position < HOLDOUT_SHARE else Split.TRAIN


def gold_key(split_key: str) -> str:
    """First 16 hex digits of the key's hash: names a gold without showing it."""
    return sha256_hex(split_key)[:16]


def fold_of(key: str) -> int:
    """Half of a split a gold belongs to (0 or 1), from its `gold_key`; independent of the split."""
    return int(key[-1], 16) & 1


def served_name(run_id: str, step: int, digest: str) -> str:
    """The name an engine serves an adapter under. Never reused: vLLM keys its prefix cache on the name alone."""
    return f"{run_id}-s{step}-{digest[:8]}"


@dataclass(frozen=True)
class ServedName:
    """The parts of a served name."""

    run_id: str
    step: int
    digest8: str


def parse_served_name(name: str) -> ServedName:
    """Inverse of `served_name`. Raises ValueError for any other shape."""
    found = _SERVED_NAME.fullmatch(name)
    if found is None:
        raise ValueError(
            f"{name!r} is no served adapter name: expected <run>-s<step>-<first 8 hex digits of the digest>"
        )
    return ServedName(found["run"], int(found["step"]), found["digest8"])


@dataclass(frozen=True)
class RunStep:
    """A policy that is an adapter: a run's checkpoint."""

    run_id: str
    step: int


def parse_policy(policy: str) -> RunStep | None:
    """None for `base`, else the run and step of `<run>@<step>`. Raises ValueError for any other shape."""
    if policy == BASE_POLICY:
        return None
    run_id, separator, step = policy.rpartition("@")
    if not separator or not run_id or not step.isdigit():
        raise ValueError(f"{policy!r} is no policy: expected `base` or `<run>@<step>`, e.g. `night-1@40`")
    return RunStep(run_id, int(step))
