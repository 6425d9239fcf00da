"""The sandboxes this verifier holds: made, found, rebuilt after a crash, removed when unused. Blocking; thread-safe."""

import logging
import threading
import time
import uuid

from services.verifier.execution import Failure, Limits, Outcome, execute
from services.verifier.metrics import SANDBOX_REBUILDS, SANDBOX_STARTS, SANDBOXES
from services.verifier.quarantine import Quarantine
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
        self._quarantine = Quarantine(driver, bundle)
        self._sessions: Sessions | None = None
        self._closed = False
        self._first_start = threading.Lock()
        self._starting = threading.Lock()

    def start(self) -> None:
        """Once; whoever else asks meanwhile waits. Raises BundleFaulty or SandboxFailed."""
        with self._first_start:
            if self.started:
                return
            started = time.perf_counter()
            self._usable_sessions()
            self.ready_ms = (time.perf_counter() - started) * 1000
            SANDBOX_STARTS.observe(self.ready_ms / 1000)

    @property
    def started(self) -> bool:
        """Whether it ever answered a query."""
        return self.ready_ms > 0

    def run(self, role: Role, seed: str, sql: str, limits: Limits) -> Outcome:
        """Run a statement. One whose cluster failed under it runs once more, on a fresh cluster with the same rows.

        A candidate under which that fails too runs alone.
        """
        outcome = self._run_once(role, seed, sql, limits)
        if outcome.failure is Failure.INFRASTRUCTURE and not self._closed:
            outcome = self._run_once(role, seed, sql, limits)
        if outcome.failure is Failure.INFRASTRUCTURE and role is Role.CANDIDATE and not self._closed:
            outcome = self._quarantine.run(seed, sql, limits)
        return outcome

    def _run_once(self, role: Role, seed: str, sql: str, limits: Limits) -> Outcome:
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
        """Watchdog, limits of the whole sandbox, dead servers, idle connections; called every second or so."""
        self._quarantine.tend()
        sessions = self._sessions
        if sessions is None:
            return
        if not sessions.cluster.alive():
            self._discard(sessions)
            return
        sessions.terminate_overdue()
        sessions.close_idle()
        if sessions.busy and (overuse := sessions.cluster.overuse()):
            log.warning("sandbox %s is stopped for its use of %s", self.sandbox_id, overuse)
            self._discard(sessions)

    def close(self) -> None:
        """Remove everything. Idempotent."""
        with self._starting:
            self._closed = True
            self._quarantine.close()
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
        self._guard = threading.Lock()

    def create(self, sandbox_id: str | None, run_id: str, bundle: Bundle) -> Sandbox:
        """A sandbox, or the one that this id already names. Raises Conflict, Invalid, TooMany, Unavailable."""
        sandbox_id = sandbox_id or f"sandbox-{uuid.uuid4().hex[:12]}"
        with self._guard:
            sandbox = self._by_id.get(sandbox_id)
            if sandbox is None:
                if len(self._by_id) >= self._limit:
                    raise TooMany(f"{self._limit} sandboxes are alive: delete one, or raise SQLCLIMB_SANDBOX_LIMIT")
                sandbox = self._by_id[sandbox_id] = RunningSandbox(sandbox_id, run_id, bundle, self._driver)
        # While it starts it holds its place, and the same call again waits for it here.
        if sandbox.digest != bundle.digest or sandbox.run_id != run_id:
            raise Conflict(
                f"sandbox {sandbox_id} exists for run {sandbox.run_id} with another bundle or run: "
                "delete it first or use another id"
            )
        try:
            sandbox.start()
        except BaseException as error:
            self._remove(sandbox)
            if isinstance(error, BundleFaulty):
                raise Invalid(f"bundle {bundle.name}: {error}. No sandbox was made") from error
            if isinstance(error, SandboxFailed):
                raise Unavailable(f"{error}. No sandbox was made; try again") from error
            raise
        SANDBOXES.set(len(self._by_id))
        return sandbox.describe()

    def get(self, sandbox_id: str) -> RunningSandbox:
        """Raises NotFound."""
        sandbox = self._by_id.get(sandbox_id)
        if sandbox is None or not sandbox.started:
            raise NotFound(f"no sandbox {sandbox_id}: it was removed or the verifier restarted; create it again")
        sandbox.used_at = time.monotonic()
        return sandbox

    def delete(self, sandbox_id: str) -> None:
        """Unknown ids are no error."""
        sandbox = self._by_id.get(sandbox_id)
        if sandbox is not None:
            self._remove(sandbox)

    def _remove(self, sandbox: RunningSandbox) -> None:
        sandbox.close()
        with self._guard:
            if self._by_id.get(sandbox.sandbox_id) is sandbox:
                del self._by_id[sandbox.sandbox_id]
        SANDBOXES.set(len(self._by_id))

    def tend(self) -> None:
        """Watchdogs, limits, idle connections; sandboxes unused for longer than the TTL are removed. Never raises."""
        now = time.monotonic()
        for sandbox in list(self._by_id.values()):
            try:
                if now - sandbox.used_at > self._ttl_seconds and not sandbox.busy:
                    log.info("sandbox %s was unused for %.0f s and is removed", sandbox.sandbox_id, self._ttl_seconds)
                    self._remove(sandbox)
                else:
                    sandbox.tend()
            except Exception:  # one sandbox's trouble must not end the watchdog of the others
                log.exception("sandbox %s could not be tended", sandbox.sandbox_id)

    def close(self) -> None:
        """Remove all."""
        for sandbox_id in list(self._by_id):
            self.delete(sandbox_id)
