"""When to ask again, when to give up, when to pause: pure rules over outcomes, no clock and no I/O."""

from collections import deque
from dataclasses import dataclass

from services.rollout.worker.groups import PERMANENT, FailureReason

LONGEST_WAIT_SECONDS = 30.0
"""Backoff stops doubling here: a training step waits for its slowest group."""

TIMEOUT_RETRIES = 1
"""A budget is minutes long and generous: what exceeds it twice would hold its place among the groups for hours."""

OUTAGES = 8
"""Pauses that one group's tries may fall into: a prompt that kills the engine each time must not do so for ever."""

WINDOW_GROUPS = 20
"""Outcomes looked at; about one round of the groups in flight."""

WINDOW_MINIMUM = 8
"""Fewer outcomes say nothing about the infrastructure."""

WINDOW_SHARE = 0.5
"""Pause at this share of failures: re-rolls then cost more than waiting does."""


@dataclass(frozen=True)
class RetryRule:
    """Re-rolls of one group."""

    retries: int
    first_wait_seconds: float

    def wait_seconds(self, reason: FailureReason, failures: int, outages: int = 0) -> float | None:
        """Seconds to wait before the next try after `failures` failures that count; None: give up.

        A failure that fell into a pause is one of the `outages` instead: the infrastructure was away, and the group is
        hardly at fault.
        """
        retries = min(self.retries, TIMEOUT_RETRIES) if reason is FailureReason.TIMEOUT else self.retries
        if reason in PERMANENT or failures > retries or outages > OUTAGES:
            return None
        return float(min(self.first_wait_seconds * 2 ** max(failures - 1, 0), LONGEST_WAIT_SECONDS))


class FailureWindow:
    """The last outcomes of a sampling; says when too many of them are failures of the infrastructure."""

    def __init__(self) -> None:
        self._outcomes: deque[bool] = deque(maxlen=WINDOW_GROUPS)

    def record(self, failed: bool) -> None:
        """One more outcome."""
        self._outcomes.append(failed)

    def tripped(self) -> bool:
        """Whether to pause."""
        return len(self._outcomes) >= WINDOW_MINIMUM and self.failures >= WINDOW_SHARE * len(self._outcomes)

    @property
    def failures(self) -> int:
        """Failures among the outcomes looked at."""
        return sum(self._outcomes)

    def reset(self) -> None:
        """Forget: the pause is over."""
        self._outcomes.clear()
