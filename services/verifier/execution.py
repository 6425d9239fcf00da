"""One statement in one session: rows up to a cap, or why there are none. Blocking; no exception leaves this module.

The statement goes by the extended protocol (which takes exactly one), in a READ ONLY transaction, and its rows are read
one by one, so that a result over the cap is never fetched.
"""

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import psycopg
from psycopg import errors

from services.verifier.sandbox.protocol import Role
from services.verifier.sandbox.session import Session, Sessions
from services.verifier.values import Value, decode_rows

_CLIENT_GONE = ("08", "57P")
"""SQLSTATE classes that say the session or server went away: connection exceptions, operator intervention."""


class Failure(StrEnum):
    """Why a statement gave no usable rows."""

    SQL_ERROR = "sql_error"
    TIMEOUT = "timeout"
    OVERSIZED = "oversized"  # more rows or bytes than the cap
    INFRASTRUCTURE = "infrastructure"  # not the statement's doing


@dataclass(frozen=True)
class Limits:
    """What a result may hold."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Outcome:
    """Rows, or a failure. `exec_ms` is wall time in the session."""

    columns: tuple[str, ...] = ()
    """Empty when no row came."""
    rows: Sequence[tuple[Value, ...]] = ()
    texts: Sequence[tuple[str | None, ...]] = ()
    """The rows as Postgres printed them."""
    size_bytes: int = 0
    exec_ms: float = 0.0
    failure: Failure | None = None
    reason: str = ""


def execute(sessions: Sessions, role: Role, seed: str, sql: str, limits: Limits) -> Outcome:
    """Run one statement."""
    started = time.perf_counter()
    try:
        with sessions.session(role, seed) as session:
            return _run(session, sql, limits, started)
    except psycopg.Error as error:  # no session to be had
        return Outcome(failure=Failure.INFRASTRUCTURE, reason=f"the sandbox's Postgres is gone: {_first_line(error)}")


def _run(session: Session, sql: str, limits: Limits, started: float) -> Outcome:
    try:
        session.connection.execute("BEGIN READ ONLY")
        outcome = _fetch(session, sql, limits)
    except psycopg.Error as error:
        outcome = _failure(session, error)
    elapsed_ms = (time.perf_counter() - started) * 1000
    return Outcome(
        outcome.columns,
        outcome.rows,
        outcome.texts,
        outcome.size_bytes,
        elapsed_ms,
        outcome.failure,
        outcome.reason,
    )


def _fetch(session: Session, sql: str, limits: Limits) -> Outcome:
    """Raises psycopg.Error."""
    texts: list[tuple[str | None, ...]] = []
    size = 0
    with session.connection.cursor() as cursor:
        with contextlib.closing(_stream(cursor, sql)) as stream:
            for row in stream:
                texts.append(row)
                size += sum(len(value) for value in row if value is not None)
                if len(texts) > limits.rows or size > limits.bytes:
                    what = f"{limits.rows} rows" if len(texts) > limits.rows else f"{limits.bytes} bytes"
                    return Outcome(failure=Failure.OVERSIZED, reason=f"more than {what}")
        description = cursor.description if texts else []
        columns = tuple(column.name for column in description or [])
        oids = [column.type_code for column in description or []]
    return Outcome(columns, decode_rows(texts, oids), texts, size)


def _stream(cursor: psycopg.Cursor[tuple[str | None, ...]], sql: str) -> Generator[tuple[str | None, ...]]:
    # Closing this generator closes psycopg's, which cancels a query whose rows are not all wanted.
    # Row by row: chunks of rows of 100 MB each would all be held.
    yield from cursor.stream(sql.encode(), size=1)


def _failure(session: Session, error: psycopg.Error) -> Outcome:
    state = error.sqlstate
    terminated = session.running is not None and session.running.terminated
    if terminated or isinstance(error, errors.QueryCanceled):
        return Outcome(failure=Failure.TIMEOUT, reason="did not finish within the statement timeout")
    if session.connection.broken or (state or "08").startswith(_CLIENT_GONE):
        gone = f"the sandbox's Postgres went away: {_first_line(error)}"
        return Outcome(failure=Failure.INFRASTRUCTURE, reason=gone)
    return Outcome(failure=Failure.SQL_ERROR, reason=_first_line(error))


def _first_line(error: psycopg.Error) -> str:
    message = error.diag.message_primary or str(error)
    return message.strip().splitlines()[0][:300] if message.strip() else type(error).__name__
