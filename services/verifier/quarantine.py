"""Whose doing it is when clusters die under a statement: it runs again on clusters that nothing else uses. Blocking.

A failure of the infrastructure is never scored. A candidate that ends every Postgres it meets must not pass for one, or
it would hide from the reward; and its neighbours, whose statements died with it, must not pass for it.

What tells the two apart: a statement can end its backend, whereupon the server starts anew, or use more than it may,
whereupon we stop the server. A server that is gone by itself was killed from outside. Nor is a statement to blame that
got no session, or an error of the machine's (a full disk) that left its session open.
"""

import logging
import threading
import time

from services.verifier.execution import Failure, Limits, Outcome, execute
from services.verifier.sandbox.protocol import BundleFaulty, Role, SandboxDriver, SandboxFailed
from services.verifier.sandbox.session import Sessions
from shared.domain import Bundle

log = logging.getLogger(__name__)

DEATHS = 2
"""Clusters of its own that must die by a candidate before it is to blame: a backend may be killed from outside."""

RECOVERY_SECONDS = 5.0
"""Longest wait for a server that lost a backend to answer again."""

_POLL_SECONDS = 0.02


class Quarantine:
    """One sandbox's; one statement at a time."""

    def __init__(self, driver: SandboxDriver, bundle: Bundle) -> None:
        self._driver = driver
        self._bundle = bundle
        self._turn = threading.Lock()
        self._sessions: Sessions | None = None
        self._overused: Sessions | None = None
        """Those whose cluster we stopped for its use."""
        self._closed = False

    def run(self, seed: str, sql: str, limits: Limits) -> Outcome:
        """A candidate's outcome; an SQL error when its own clusters died by it."""
        with self._turn:
            deaths = 0
            for _ in range(DEATHS):
                try:
                    outcome, by_it = self._run_alone(seed, sql, limits)
                except (SandboxFailed, BundleFaulty) as error:  # not even a fresh one starts
                    return Outcome(failure=Failure.INFRASTRUCTURE, reason=str(error))
                if outcome.failure is not Failure.INFRASTRUCTURE or self._closed:
                    return outcome
                deaths += by_it
            if deaths < DEATHS:
                return outcome
        log.warning("a statement ended the Postgres of its sandbox each time it ran; it counts as an SQL error")
        return Outcome(failure=Failure.SQL_ERROR, reason="ends the database server each time it runs")

    def _run_alone(self, seed: str, sql: str, limits: Limits) -> tuple[Outcome, bool]:
        """The outcome, and whether the statement ended its Postgres. Raises BundleFaulty or SandboxFailed."""
        cluster = self._driver.start(self._bundle)
        self._sessions = sessions = Sessions(cluster, self._bundle.settings.statement_timeout_seconds)
        try:
            outcome = execute(sessions, Role.CANDIDATE, seed, sql, limits)
            return outcome, outcome.crashed and (self._overused is sessions or _answers_again(sessions, seed, limits))
        finally:
            self._sessions = None
            sessions.close()
            cluster.stop()

    def tend(self) -> None:
        """Watchdog and limits, as of any sandbox."""
        sessions = self._sessions
        if sessions is None:
            return
        sessions.terminate_overdue()
        if sessions.cluster.overuse():
            self._overused = sessions
            sessions.cluster.stop()

    def close(self) -> None:
        """End what runs. Idempotent."""
        self._closed = True
        sessions = self._sessions
        if sessions is not None:
            sessions.cluster.stop()


def _answers_again(sessions: Sessions, seed: str, limits: Limits) -> bool:
    """Whether the server outlived its backend."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    while sessions.cluster.alive() and time.monotonic() < deadline:
        if execute(sessions, Role.CANDIDATE, seed, "SELECT 1", limits).failure is None:
            return True
        time.sleep(_POLL_SECONDS)
    return False
