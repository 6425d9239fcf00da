"""What is watched while an attack runs, and when that is harm."""

import contextlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from shared.domain import Bundle, DomainSettings
from tests.verifier.attacks import Attack

SCHEMA = """
CREATE TABLE author (id int PRIMARY KEY, name text NOT NULL, born date, rating numeric(4, 2));
CREATE TABLE book (id int PRIMARY KEY, author_id int REFERENCES author, title text, price numeric(8, 2), sold int);
CREATE TABLE wide AS SELECT g AS id, repeat('x', 100) AS filler FROM generate_series(1, 20000) g;
CREATE TABLE untouched ();
CREATE SEQUENCE counter;
CREATE PROCEDURE wipe() LANGUAGE sql AS 'DELETE FROM book';
CREATE FUNCTION wiped() RETURNS void LANGUAGE sql AS 'DELETE FROM book';
CREATE FUNCTION wiped_as_owner() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'DELETE FROM book';
CREATE FUNCTION spying() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
"""
SEED = """
INSERT INTO author VALUES (1, 'Ada', '1990-01-01', 4.50), (2, 'Bo', '1985-05-05', 3.25), (3, 'Cy', NULL, NULL);
INSERT INTO book VALUES (1, 1, 'Alpha', 10.00, 5), (2, 1, 'Beta', 20.00, 5), (3, 2, 'Gamma', 30.00, 1);
INSERT INTO book SELECT 3 + g, 1, 'Alpha', 1, 1 FROM generate_series(1, 20) g;
"""
TIMEOUT_S = 1.0
BUNDLE = Bundle(
    DomainSettings(name="attacked", statement_timeout_seconds=TIMEOUT_S), SCHEMA, SEED, variants={"other": SEED}
)
DATABASE = "seed_0"
RUNS = 12
"""Of a statement that gambles: all alike by chance once in 2,000 times for a coin."""

CONTROL = """
SELECT a.name, count(b.id) FROM author a LEFT JOIN book b ON b.author_id = a.id GROUP BY a.id ORDER BY a.id
"""
CONTROL_ROWS = [("Ada", "22"), ("Bo", "1"), ("Cy", "0")]
STATE = """
SELECT (SELECT md5(string_agg(author::text, ',' ORDER BY id)) FROM author),
       (SELECT md5(string_agg(book::text, ',' ORDER BY id)) FROM book),
       (SELECT count(*) FROM wide), (SELECT row(last_value, is_called)::text FROM counter),
       (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_class WHERE relpersistence = 't'),
       (SELECT count(*) FROM pg_proc), (SELECT count(*) FROM pg_namespace WHERE nspname NOT LIKE 'pg_t%'),
       (SELECT count(*) FROM pg_roles), (SELECT count(*) FROM pg_db_role_setting), (SELECT count(*) FROM pg_extension),
       (SELECT count(*) FROM pg_database), (SELECT count(*) FROM pg_largeobject_metadata),
       (SELECT count(*) FROM pg_locks WHERE pid <> pg_backend_pid()),
       (SELECT count(*) FROM pg_ls_dir('.')), (SELECT count(*) FROM pg_ls_tmpdir()),
       (SELECT md5(string_agg(name || setting, ',' ORDER BY name)) FROM pg_settings WHERE source = 'configuration file')
"""
"""What an onlooker compares before and after: rows, definitions, rights, locks, files, settings."""


@dataclass
class Seen:
    """What was observed of one run."""

    outcome: str = ""
    """For people: `rows`, `stopped`, or how Postgres ended it."""
    carried_out: bool = False
    """It ended without an error."""
    ran: bool = False
    """It was carried out, or a limit or the onlooker stopped it."""
    texts: list[str] = field(default_factory=list)
    """What each run returned."""
    changed: tuple[Any, Any] = (None, None)
    remains: tuple[Any, Any] = (None, None)
    heard: bool = False
    broken: bool = False
    seconds: float = 0
    memory_mb: float = 0
    temp_mb: float = 0


def harm(attack: Attack, seen: Seen) -> str:
    """The attack's harm as it was seen, or nothing. Pure."""
    observed = {
        f"runs {seen.seconds:.1f} s": attack.runs_s and seen.ran and seen.seconds >= attack.runs_s,
        f"takes {seen.memory_mb:.0f} MB": attack.memory_mb and seen.memory_mb >= attack.memory_mb,
        f"spills {seen.temp_mb:.0f} MB": attack.temp_mb and seen.temp_mb >= attack.temp_mb,
        f"changes {seen.changed}": attack.changes and seen.changed[0] != seen.changed[1],
        f"remains {seen.remains}": attack.remains and seen.remains[0] != seen.remains[1],
        f"shows {attack.shows}": attack.shows and re.search(attack.shows, "\n".join(seen.texts), re.M),
        "varies": attack.varies and len(set(seen.texts)) > 1,
        "succeeds": attack.succeeds and seen.carried_out,
        "is heard": (attack.listens or attack.notifies) and seen.heard,
        f"breaks: {seen.outcome}": attack.breaks and seen.broken,
    }
    return next((what for what, found in observed.items() if found), "")


def result_of(connection: psycopg.Connection[Any], query: str) -> Any:
    """Rows as text, or how the query failed."""
    if not query:
        return None
    try:
        return str(connection.execute(query.encode()).fetchall())
    except psycopg.Error as error:
        return f"error {error.sqlstate}"


def connect(host: str, user: str) -> psycopg.Connection[Any]:
    return psycopg.connect(host=host, user=user, dbname=DATABASE, autocommit=True, connect_timeout=5)


def state_of(onlooker: psycopg.Connection[Any]) -> Any:
    return result_of(onlooker, STATE)


def is_notified(listener: psycopg.Connection[Any]) -> bool:
    return any(listener.notifies(timeout=0.3, stop_after=1))


class Watch:
    """Peak memory of a cluster's largest process, and of its temporary files, sampled while a thread runs."""

    def __init__(self, host: str) -> None:
        self._folder = Path(host).parent
        self.memory_mb = 0.0
        self.temp_mb = 0.0

    def until(self, running: threading.Thread, enough: Callable[["Watch", float], bool]) -> float:
        """Sample until the thread ends or it is `enough`. Seconds that took."""
        started = time.monotonic()
        while running.is_alive() and not enough(self, time.monotonic() - started):
            self._sample()
            running.join(0.01)
        return time.monotonic() - started

    def _sample(self) -> None:
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                self.memory_mb = max(self.memory_mb, process.memory_info().rss / 1024**2)
        occupied = 0
        for path in (self._folder / "data" / "base").glob("pgsql_tmp/**/*"):
            with contextlib.suppress(OSError):
                occupied += path.stat().st_blocks * 512
        self.temp_mb = max(self.temp_mb, occupied / 1024**2)

    def _processes(self) -> list[psutil.Process]:
        """Postmaster and backends; under bubblewrap, children of the process that was started."""
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            started = psutil.Process(int((self._folder / "pid").read_text()))
            return [started, *started.children(recursive=True)]
        return []
