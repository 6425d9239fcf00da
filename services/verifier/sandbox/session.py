"""Sessions of one cluster: a small pool of connections by role and seed, each reset to pinned settings after use.

Blocking and thread-safe. The watchdog (`terminate_overdue`) is the second timeout: it does not trust the server's own.
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.string import TextLoader

from services.verifier.sandbox.exchange import Answer, exchange
from services.verifier.sandbox.protocol import MAIN_SEED, Cluster, Role

CONNECT_SECONDS = 5
"""Longest wait for a connection to a running server."""

WATCHDOG_GRACE_SECONDS = 1.0
"""How far past its timeout a statement may run before its backend is terminated; after twice that, its cluster."""

IDLE_SECONDS = 30.0
"""Connections unused for so long are closed: an idle sandbox should cost little memory."""

OPEN_SESSIONS = 40
"""Connections of one cluster at once: below its max_connections, above the most workers there may be."""

PINNED = {
    "search_path": "public",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "client_encoding": "UTF8",
    "default_transaction_read_only": "on",
    "lock_timeout": "1000",
    "idle_in_transaction_session_timeout": "30000",
}
"""Session settings, sent at login so that RESET returns to them."""


def login_options(settings: Mapping[str, str]) -> str:
    """Session settings as libpq's `options` takes them."""
    return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items())


def _raw_text() -> AdaptersMap:
    """Every type arrives as Postgres' own text; `values` gives it meaning."""
    adapters = AdaptersMap()
    adapters.register_loader(0, TextLoader)
    return adapters


_ADAPTERS = _raw_text()


@dataclass
class Running:
    """A statement in flight."""

    backend: int
    deadline: float
    """Monotonic seconds at which statement_timeout should have ended it."""
    terminated: bool = False
    """By the watchdog."""


@dataclass
class Session:
    """One logged-in connection."""

    connection: psycopg.Connection[tuple[str | None, ...]]
    used_at: float = 0.0
    running: Running | None = None
    spent: bool = True
    """Not to be used again: something of what ran in it may be left."""

    def run(self, sql: str, row_limit: int, byte_limit: int) -> Answer:
        """Run one statement and reset the session. Raises psycopg.Error, then the session is spent."""
        answer = exchange(self.connection, sql, row_limit, byte_limit)
        self.spent = not answer.reusable
        return answer


@dataclass
class Sessions:
    """The pool of one cluster."""

    cluster: Cluster
    statement_timeout_seconds: float
    _idle: dict[tuple[Role, str], list[Session]] = field(default_factory=dict)
    _running: list[Running] = field(default_factory=list)
    _open: int = 0
    _closed: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def session(self, role: Role, seed: str) -> Iterator[Session]:
        """A clean session; kept afterwards when `run` has reset it, else closed. Raises psycopg.Error."""
        with self._guard:
            kept = self._idle.get((role, seed))
            session = kept.pop() if kept else None
            surplus = self._take_surplus() if session is None else None
        if surplus is not None:
            self._close(surplus)
        if session is None:
            session = self._log_in(role, seed)
        running = Running(session.connection.info.backend_pid, time.monotonic() + self.statement_timeout_seconds)
        session.running, session.spent = running, True
        with self._guard:
            self._running.append(running)
        try:
            yield session
        finally:
            with self._guard:
                self._running.remove(running)
            self._put_back(session, role, seed)

    def _take_surplus(self) -> Session | None:
        """An idle session of another kind, when one more would be too many. Under the guard."""
        idle = next((sessions for sessions in self._idle.values() if sessions), None)
        return idle.pop() if idle is not None and self._open >= OPEN_SESSIONS else None

    def _close(self, session: Session) -> None:
        session.connection.close()
        with self._guard:
            self._open -= 1

    def _log_in(self, role: Role, seed: str) -> Session:
        timeout_ms = int(self.statement_timeout_seconds * 1000)
        connection = psycopg.connect(
            host=self.cluster.host,
            password=self.cluster.password,
            user=role,
            dbname=self.cluster.database(seed),
            connect_timeout=CONNECT_SECONDS,
            options=login_options({**PINNED, "statement_timeout": str(timeout_ms)}),
            autocommit=True,
            prepare_threshold=None,
            context=_ADAPTERS,
        )
        with self._guard:
            self._open += 1
        return Session(connection)

    def _put_back(self, session: Session, role: Role, seed: str) -> None:
        if session.spent:
            self._close(session)
            return
        session.used_at, session.running = time.monotonic(), None
        with self._guard:
            kept = not self._closed
            if kept:
                self._idle.setdefault((role, seed), []).append(session)
        if not kept:
            self._close(session)

    @property
    def busy(self) -> bool:
        """Whether a statement is in flight."""
        return bool(self._running)

    def terminate_overdue(self) -> None:
        """End what outlived its timeout: first the backend, then, if that did not help, the whole cluster."""
        now = time.monotonic()
        with self._guard:
            overdue = [running for running in self._running if now > running.deadline + WATCHDOG_GRACE_SECONDS]
        if not overdue:
            return
        if any(running.terminated and now > running.deadline + 2 * WATCHDOG_GRACE_SECONDS for running in overdue):
            self.cluster.stop()
            return
        for running in overdue:
            running.terminated = True
        with contextlib.suppress(psycopg.Error):
            self._terminate([running.backend for running in overdue])

    def _terminate(self, backends: list[int]) -> None:
        with psycopg.connect(
            host=self.cluster.host,
            password=self.cluster.password,
            user=Role.ADMIN,
            dbname=self.cluster.database(MAIN_SEED),
            connect_timeout=2,
            autocommit=True,
        ) as admin:
            admin.execute("SELECT pg_terminate_backend(backend) FROM unnest(%s::int[]) backend", (backends,))

    def close_idle(self, older_than_seconds: float = IDLE_SECONDS) -> None:
        """Close connections unused for that long."""
        horizon = time.monotonic() - older_than_seconds
        closing: list[Session] = []
        with self._guard:
            for key, sessions in self._idle.items():
                closing += [session for session in sessions if session.used_at <= horizon]
                self._idle[key] = [session for session in sessions if session.used_at > horizon]
        for session in closing:
            self._close(session)

    def close(self) -> None:
        """Close all idle connections; those in use close when their statement ends."""
        with self._guard:
            self._closed = True
        self.close_idle(older_than_seconds=0)
