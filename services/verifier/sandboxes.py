"""The sandboxes this verifier holds: made, found, rebuilt after a crash, removed when unused. Blocking; thread-safe."""

import logging
import threading
import time
import uuid

from services.verifier.execution import Failure, Limits, Outcome, execute
from services.verifier.metrics import SANDBOX_REBUILDS, SANDBOX_STARTS, SANDBOXES
from services.verifier.sandbox.protocol import BundleFaulty, Role, SandboxDriver, SandboxFailed, seed_names
from services.verifier.sandbox.session import Sessions
from shared.contracts.verifier import Sandbox
from shared.domain import Bundle
from shared.errors import Conflict, Invalid, NotFound, TooMany, Unavailable

log = logging.getLogger(__name__)


class RunningSandbox:
    """One run's sandbox; its cluster is replaced when it dies."""

    def __init__(self, sandbox_id: str, run_id: str, bundle: Bundle, driver: SandboxDriver) -> None:
        self.sandbox_id = sandbox_id
        self.run_id = run_id
        self.bundle = bundle
        self.digest = bundle.digest
        self.seeds = list(seed_names(bundle))
        self.used_at = time.monotonic()
        self.ready_ms = 0.0
        self.data_id = ""
        """Names the rows it holds: what results are cached under."""
        self._driver = driver
        self._sessions: Sessions | None = None
        self._closed = False
        self._starting = threading.Lock()

    def start(self) -> None:
        """Raises BundleFaulty or SandboxFailed."""
        started = time.perf_counter()
        self._usable_sessions()
        self.ready_ms = (time.perf_counter() - started) * 1000
        SANDBOX_STARTS.observe(self.ready_ms / 1000)

    def run(self, role: Role, seed: str, sql: str, limits: Limits) -> Outcome:
        """Run a statement; an infrastructure failure replaces the cluster on next use."""
        self.used_at = time.monotonic()
        try:
            sessions = self._usable_sessions()
        except (SandboxFailed, BundleFaulty) as error:
            return Outcome(failure=Failure.INFRASTRUCTURE, reason=str(error))
        outcome = execute(sessions, role, seed, sql, limits)
        if outcome.failure is Failure.INFRASTRUCTURE:
            self._discard(sessions)
        self.used_at = time.monotonic()
        return outcome

    def _usable_sessions(self) -> Sessions:
        with self._starting:
            if self._closed:
                raise SandboxFailed("the sandbox was removed")
            if self._sessions is not None and self._sessions.cluster.alive():
                return self._sessions
            if self._sessions is not None:
                self._drop(self._sessions)
            cluster = self._driver.start(self.bundle)
            self.data_id = cluster.data_id
            self._sessions = Sessions(cluster, self.bundle.settings.statement_timeout_seconds)
            return self._sessions

    def _discard(self, failed: Sessions) -> None:
        with self._starting:
            if self._sessions is failed:
                self._drop(failed)

    def _drop(self, sessions: Sessions) -> None:
        self._sessions = None
        sessions.close()
        sessions.cluster.stop()
        if not self._closed:
            SANDBOX_REBUILDS.inc()
            log.warning("sandbox %s lost its Postgres; it is rebuilt on next use", self.sandbox_id)

    @property
    def busy(self) -> bool:
        """Whether a statement is in flight."""
        sessions = self._sessions
        return sessions is not None and sessions.busy

    def tend(self) -> None:
        """Watchdog and idle connections; called every second or so."""
        sessions = self._sessions
        if sessions is not None:
            sessions.terminate_overdue()
            sessions.close_idle()

    def close(self) -> None:
        """Remove everything. Idempotent."""
        with self._starting:
            self._closed = True
            if self._sessions is not None:
                self._drop(self._sessions)

    def describe(self) -> Sandbox:
        """As the contract shows it."""
        return Sandbox(
            sandbox_id=self.sandbox_id,
            run_id=self.run_id,
            domain=self.bundle.name,
            digest=self.digest,
            postgres=self._driver.postgres_version,
            isolation=self._driver.isolation,
            seeds=self.seeds,
            ready_ms=self.ready_ms,
        )


class Sandboxes:
    """All of them, by id."""

    def __init__(self, driver: SandboxDriver, limit: int, ttl_seconds: float) -> None:
        self._driver = driver
        self._limit = limit
        self._ttl_seconds = ttl_seconds
        self._by_id: dict[str, RunningSandbox] = {}
        self._creating: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def create(self, sandbox_id: str | None, run_id: str, bundle: Bundle) -> Sandbox:
        """A sandbox, or the one that this id already names. Raises Conflict, Invalid, TooMany, Unavailable."""
        sandbox_id = sandbox_id or f"sandbox-{uuid.uuid4().hex[:12]}"
        with self._guard:
            creating = self._creating.setdefault(sandbox_id, threading.Lock())
        with creating:
            known = self._by_id.get(sandbox_id)
            if known is not None:
                if known.digest != bundle.digest or known.run_id != run_id:
                    raise Conflict(
                        f"sandbox {sandbox_id} exists for run {known.run_id} with another bundle or run: "
                        "delete it first or use another id"
                    )
                return known.describe()
            if len(self._by_id) >= self._limit:
                raise TooMany(f"{self._limit} sandboxes are alive: delete one, or raise SQLCLIMB_SANDBOX_LIMIT")
            sandbox = RunningSandbox(sandbox_id, run_id, bundle, self._driver)
            try:
                sandbox.start()
            except BundleFaulty as error:
                raise Invalid(f"bundle {bundle.name}: {error}. No sandbox was made") from error
            except SandboxFailed as error:
                raise Unavailable(f"{error}. No sandbox was made; try again") from error
            with self._guard:
                self._by_id[sandbox_id] = sandbox
                self._creating.pop(sandbox_id, None)
            SANDBOXES.set(len(self._by_id))
            return sandbox.describe()

    def get(self, sandbox_id: str) -> RunningSandbox:
        """Raises NotFound."""
        sandbox = self._by_id.get(sandbox_id)
        if sandbox is None:
            raise NotFound(f"no sandbox {sandbox_id}: it was removed or the verifier restarted; create it again")
        sandbox.used_at = time.monotonic()
        return sandbox

    def delete(self, sandbox_id: str) -> None:
        """Unknown ids are no error."""
        with self._guard:
            sandbox = self._by_id.pop(sandbox_id, None)
        if sandbox is not None:
            sandbox.close()
        SANDBOXES.set(len(self._by_id))

    def tend(self) -> None:
        """Watchdogs, idle connections, and removal of sandboxes unused for longer than the TTL."""
        now = time.monotonic()
        for sandbox in list(self._by_id.values()):
            if now - sandbox.used_at > self._ttl_seconds and not sandbox.busy:
                log.info("sandbox %s was unused for %.0f s and is removed", sandbox.sandbox_id, self._ttl_seconds)
                self.delete(sandbox.sandbox_id)
            else:
                sandbox.tend()

    def close(self) -> None:
        """Remove all."""
        for sandbox_id in list(self._by_id):
            self.delete(sandbox_id)
