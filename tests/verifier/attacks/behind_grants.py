"""The parser off, all else as in production: rights, read-only transaction, one statement by the extended protocol,
reset sessions, timeouts, caps and the watchdog."""

import threading
from typing import Any

import psycopg

from services.verifier.execution import Failure, Limits, Outcome
from services.verifier.sandbox.local import LocalDriver
from services.verifier.sandbox.protocol import Role
from services.verifier.sandboxes import RunningSandbox
from tests.verifier.attacks import Attack
from tests.verifier.attacks.observing import (
    BUNDLE,
    CONTROL,
    CONTROL_ROWS,
    RUNS,
    TIMEOUT_S,
    Seen,
    Watch,
    connect,
    is_notified,
    result_of,
    state_of,
)

LIMITS = Limits(rows=200, bytes=1_000_000)
WIDE_LIMITS = Limits(rows=20_000, bytes=20_000_000)
"""For what leaks: the row cap alone must not hide it."""

PINS = {
    "statement_timeout": "1s", "search_path": "public", "TimeZone": "UTC", "DateStyle": "ISO, YMD",
    "default_transaction_read_only": "on", "transaction_read_only": "on", "transaction_isolation": "read committed",
    "work_mem": "16MB", "temp_file_limit": "64MB", "client_encoding": "UTF8", "max_parallel_workers": "0",
}  # fmt: skip
"""What a candidate's session must say of itself between statements."""


class BehindGrants:
    """One sandbox, replaced after what an administrator planted in it."""

    def __init__(self, driver: LocalDriver) -> None:
        self._driver = driver
        self.sandbox = self._fresh()

    def _fresh(self) -> RunningSandbox:
        sandbox = RunningSandbox("attacked", "tests", BUNDLE, self._driver)
        sandbox.start()
        return sandbox

    def close(self) -> None:
        self.sandbox.close()

    def _host(self) -> str:
        return self.sandbox._usable_sessions().cluster.host

    def run(self, attack: Attack) -> tuple[Seen, str]:
        """What was seen, and what is not as it was afterwards (nothing, if all is well)."""
        with connect(self._host(), Role.ADMIN) as onlooker:
            if attack.planted:
                onlooker.execute(attack.planted.encode())
            seen, left = self._run(attack, onlooker)
        if attack.planted:
            self.close()
            self.sandbox = self._fresh()
        return seen, left

    def _run(self, attack: Attack, onlooker: psycopg.Connection[Any]) -> tuple[Seen, str]:
        host, state = self._host(), state_of(onlooker)
        if attack.notifies:
            onlooker.execute(f"LISTEN {attack.notifies}".encode())
        changes, remains = result_of(onlooker, attack.changes), self._next(attack.remains)
        outcomes: list[Outcome] = []
        running = threading.Thread(target=self._ask, args=(attack, outcomes))
        watch = Watch(host)
        running.start()
        seen = Seen(seconds=watch.until(running, self._tended))
        seen.memory_mb, seen.temp_mb = watch.memory_mb, watch.temp_mb
        _describe(outcomes, seen)
        seen.remains = (remains, self._next(attack.remains))
        if self._host() != host:  # killed: what it held is gone, and rebuilt from the template
            with connect(self._host(), Role.ADMIN) as rebuilt:
                return seen, self.unharmed(rebuilt, state)
        seen.changed = (changes, result_of(onlooker, attack.changes))
        if attack.listens:
            onlooker.execute(f"NOTIFY {attack.listens}".encode())
            with self.sandbox._usable_sessions().session(Role.CANDIDATE, "main") as session:
                seen.heard = is_notified(session.connection)
        if attack.notifies:
            seen.heard = is_notified(onlooker)
        return seen, self.unharmed(onlooker, state)

    def _tended(self, watch: Watch, seconds: float) -> bool:
        """Never enough: the sandbox's own limits must end it."""
        self.sandbox.tend()
        return False

    def _ask(self, attack: Attack, outcomes: list[Outcome]) -> None:
        limits = WIDE_LIMITS if attack.shows else LIMITS
        runs = RUNS if attack.varies else 1
        outcomes.extend(self.sandbox.run(Role.CANDIDATE, "main", attack.sql, limits) for _ in range(runs))

    def _next(self, query: str) -> Any:
        """What the session's next statement returns: the pool hands out the session used last."""
        if not query:
            return None
        with self.sandbox._usable_sessions().session(Role.CANDIDATE, "main") as session:
            return result_of(session.connection, query)

    def unharmed(self, onlooker: psycopg.Connection[Any], state: Any) -> str:
        """Empty when the cluster is in that state and answers as ever, in a session at its pins; else what is wrong."""
        if (now := state_of(onlooker)) != state:
            return f"the cluster's state went from {state} to {now}"
        outcome = self.sandbox.run(Role.CANDIDATE, "main", CONTROL, LIMITS)
        if outcome.texts != CONTROL_ROWS:
            return f"the control query gives {outcome.reason or outcome.texts}"
        with self.sandbox._usable_sessions().session(Role.CANDIDATE, "main") as session:
            settings = {name: result_of(session.connection, f"SHOW {name}") for name in PINS}
        wrong = {name: value for name, value in settings.items() if value != f"[('{PINS[name]}',)]"}
        return f"settings moved: {wrong}" if wrong else ""


def _describe(outcomes: list[Outcome], seen: Seen) -> None:
    for outcome in outcomes:
        seen.texts.append(str(outcome.texts))
        seen.outcome = f"{outcome.failure or 'rows'}: {outcome.reason}"[:120]
        seen.carried_out = outcome.failure is None
        seen.ran = outcome.failure is not Failure.SQL_ERROR or outcome.exec_ms > 2000 * TIMEOUT_S
        seen.broken = outcome.failure is Failure.INFRASTRUCTURE
