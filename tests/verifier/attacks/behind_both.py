"""Both walls up: a real verifier process, asked over HTTP, watched from outside by its cluster's socket."""

import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psycopg

from services.verifier.sandbox.protocol import Role
from tests.verifier.attacks import Attack
from tests.verifier.attacks.observing import BUNDLE, CONTROL, TIMEOUT_S, Seen, Watch, connect, result_of, state_of
from tests.verifier.conftest import VerifierProcess, start_verifier

CONTROL_SHUFFLED = CONTROL.replace("ORDER BY a.id", "ORDER BY a.name DESC")
"""The same rows in another order: a match only when results are truly compared."""

Verdict = dict[str, Any]


def write_domain(folder: Path) -> None:
    """The attacked bundle as a domain folder: only there can its timeout be set."""
    domain = folder / BUNDLE.name
    (domain / "variants").mkdir(parents=True)
    (domain / "domain.toml").write_text(f'name = "{BUNDLE.name}"\nstatement_timeout_seconds = {TIMEOUT_S}\n')
    (domain / "schema.sql").write_text(BUNDLE.schema_sql)
    (domain / "seed.sql").write_text(BUNDLE.seed_sql)
    for name, seed in BUNDLE.variants.items():
        (domain / "variants" / f"{name}.sql").write_text(seed)


def honest() -> str:
    """A right candidate that no cache has seen."""
    return f"{CONTROL_SHUFFLED} -- {time.monotonic_ns()}"


class BehindBoth:
    """A verifier with one sandbox."""

    def __init__(self, folder: Path) -> None:
        write_domain(folder / "domains")
        self._verifier: VerifierProcess = start_verifier(folder, domains=f'["{folder / "domains"}"]')
        headers = {"Authorization": f"Bearer {self._verifier.token()}"}
        self._http = httpx.Client(base_url=self._verifier.url, headers=headers, timeout=120)
        self._make()

    def _make(self) -> None:
        wanted = {"sandbox_id": "attacked", "run_id": "tests", "domain": BUNDLE.name}
        self._http.post("/v1/sandboxes", json=wanted).raise_for_status()

    def close(self) -> None:
        self._http.close()
        self._verifier.stop()

    def _host(self) -> str:
        clusters = (self._verifier.folder / "sandboxes" / "clusters").iterdir()
        return str(next(path for path in clusters if (path / "pid").exists()) / "s")

    def verify(self, *statements: str) -> list[Verdict]:
        """Verdicts on statements, the gold being the control query."""
        items = [{"sql": sql, "gold": CONTROL, "order_matters": False} for sql in statements]
        answer = self._http.post("/v1/sandboxes/attacked/verify", json={"items": items})
        answer.raise_for_status()
        verdicts: list[Verdict] = answer.json()["verdicts"]
        return verdicts

    def state(self) -> Any:
        """The cluster's, as an onlooker reads it."""
        with connect(self._host(), Role.ADMIN) as onlooker:
            return state_of(onlooker)

    def run(self, attack: Attack) -> tuple[Seen, Verdict, str]:
        """What was seen, the verdict, and what is not as it was afterwards. A neighbour in the batch is honest."""
        self.verify(CONTROL)  # the sandbox runs
        host = self._host()
        with connect(host, Role.ADMIN) as onlooker:
            if attack.planted:
                onlooker.execute(attack.planted.encode())
            found = self._run(attack, host, onlooker)
        if attack.planted:
            self._http.delete("/v1/sandboxes/attacked").raise_for_status()
            self._make()
        return found

    def _run(self, attack: Attack, host: str, onlooker: psycopg.Connection[Any]) -> tuple[Seen, Verdict, str]:
        state, changes = state_of(onlooker), result_of(onlooker, attack.changes)
        verdicts: list[Verdict] = []
        running = threading.Thread(target=lambda: verdicts.extend(self.verify(attack.sql, honest())))
        watch = Watch(host)
        running.start()
        seen = Seen(seconds=watch.until(running, lambda _, __: False))
        seen.memory_mb, seen.temp_mb = watch.memory_mb, watch.temp_mb
        hostile, neighbour = verdicts
        seen.outcome, seen.ran = hostile["status"], hostile["status"] not in ("refused", "sql_error")
        seen.broken = hostile["status"] == "unscorable"
        (later,) = self.verify(honest())
        if self._host() == host:
            seen.changed = (changes, result_of(onlooker, attack.changes))
        wrong = {
            "the cluster's state differs": self.state() != state,
            f"its neighbour is {neighbour}": neighbour["status"] != "match",
            f"the next candidate is {later}": later["status"] != "match",
        }
        return seen, hostile, ", ".join(what for what, found in wrong.items() if found)


def fault(verdict: Verdict) -> str:
    """What is wrong with the verdict on a hostile statement; nothing when it earns nothing and says why. Pure."""
    stopped = verdict["status"] in ("refused", "sql_error", "timeout")
    oversized = verdict["status"] == "mismatch" and verdict["reason"].startswith("returns more than")
    if (stopped or oversized) and verdict["reward"] == 0.0 and verdict["reason"]:
        return ""
    return f"the verdict is {verdict['status']}, {verdict['reward']}: {verdict['reason']}"
