"""Both walls off: an ordinary sandbox whose candidate is a superuser with an unlimited session, asked by the simple
protocol where the statement needs it; and a parser without limits."""

import contextlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg

from services.verifier.sandbox.local import LocalDriver
from services.verifier.sandbox.protocol import Cluster, Role
from tests.verifier.attacks import Attack
from tests.verifier.attacks.observing import BUNDLE, RUNS, Seen, Watch, connect, is_notified, result_of, state_of

MEMORY_BYTES = 3 * 1024**3
GIVE_UP_S = 20.0
PARSE_S = 5.0


class Unwalled:
    """Its cluster is replaced after whatever changed it."""

    def __init__(self, folder: Path) -> None:
        self._driver = LocalDriver(folder, MEMORY_BYTES, None)
        self._cluster: Cluster | None = None

    def close(self) -> None:
        self._discard()
        self._driver.close()

    def _discard(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
        self._cluster = None

    def run(self, attack: Attack) -> Seen:
        if self._cluster is None:
            self._cluster = self._driver.start(BUNDLE)
            with connect(self._cluster.host, Role.ADMIN) as admin:
                admin.execute("ALTER ROLE candidate SUPERUSER")
        with connect(self._cluster.host, Role.ADMIN) as onlooker:
            before = (state_of(onlooker), result_of(onlooker, attack.changes))
            with contextlib.closing(connect(self._cluster.host, Role.CANDIDATE)) as session:
                seen = self._run(self._cluster, attack, onlooker, session)
            after = (state_of(onlooker), result_of(onlooker, attack.changes))
        if attack.planted or before != after:
            self._discard()
        return seen

    def _run(
        self, cluster: Cluster, attack: Attack, onlooker: psycopg.Connection[Any], session: psycopg.Connection[Any]
    ) -> Seen:
        if attack.planted:
            onlooker.execute(attack.planted.encode())
        session.execute("SET statement_timeout = '5min'; SET temp_file_limit = -1")
        if attack.before:
            session.execute(attack.before.encode())
        if attack.notifies:
            onlooker.execute(f"LISTEN {attack.notifies}".encode())
        changes, remains = result_of(onlooker, attack.changes), result_of(session, attack.remains)
        seen = Seen()
        watch = Watch(cluster.host)
        running = threading.Thread(target=_ask, args=(attack, session, seen))
        running.start()
        seen.seconds = watch.until(running, lambda watch, seconds: _enough(attack, watch, seconds))
        if running.is_alive():
            seen.ran, seen.outcome = True, "stopped"
            result_of(onlooker, f"SELECT pg_terminate_backend({session.info.backend_pid})")
            running.join(3)
            if running.is_alive():
                cluster.stop()
            running.join()
        seen.memory_mb, seen.temp_mb = watch.memory_mb, watch.temp_mb
        seen.changed = (changes, result_of(onlooker, attack.changes))
        seen.remains = (remains, result_of(session, attack.remains))
        if attack.listens:
            onlooker.execute(f"NOTIFY {attack.listens}".encode())
            seen.heard = is_notified(session)
        if attack.notifies:
            seen.heard = is_notified(onlooker)
        return seen


def _enough(attack: Attack, watch: Watch, seconds: float) -> bool:
    limits = ((attack.runs_s, seconds), (attack.memory_mb, watch.memory_mb), (attack.temp_mb, watch.temp_mb))
    return any(most and was >= most for most, was in limits) or seconds > GIVE_UP_S


def _ask(attack: Attack, session: psycopg.Connection[Any], seen: Seen) -> None:
    """As a careless caller asks; `seen` says how it ended."""
    sql = attack.wrapped.format(attack.sql).encode() if attack.wrapped != "{}" else attack.sql.encode()
    try:
        for _ in range(RUNS if attack.varies else 1):
            with session.cursor() as cursor:
                if attack.breaks or attack.runs_s or attack.memory_mb or attack.temp_mb:
                    for row in cursor.stream(sql, size=1):
                        seen.texts = [str(row)[:1000]]
                else:
                    cursor.execute(sql)
                    seen.texts.append(str(cursor.fetchmany(20_000)) if cursor.description else "")
        seen.carried_out = seen.ran = True
        seen.outcome = "rows"
    except psycopg.Error as error:
        seen.outcome = _first_line(error)
        seen.broken = session.broken or error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


_NAIVE = """
import json, sys
from postgast.native import lib
tree = lib.pg_query_parse(sys.stdin.buffer.read())
def walk(node):
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        walk(child)
walk(json.loads(tree.parse_tree)) if not tree.error else None
"""


def stops_parser(sql: str) -> str:
    """How a parser without limits, in a process of its own, ends badly; nothing when it does not."""
    argv = [sys.executable, "-c", _NAIVE]
    try:
        done = subprocess.run(argv, input=sql.encode(), capture_output=True, timeout=PARSE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"not done in {PARSE_S:.0f} s"
    if done.returncode == 0:
        return ""
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    return f"ends with {done.returncode}: {' '.join(last)[:80]}"
