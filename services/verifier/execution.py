"""One statement in one session: rows up to a cap, or why there are none. Blocking; no exception leaves this module.

How it crosses the wire is `sandbox.exchange`'s matter; here its answer becomes values or a classified failure.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import psycopg
from psycopg import errors

from services.verifier.decoded import DecodedRows
from services.verifier.nested import Value
from services.verifier.sandbox.exchange import Answer
from services.verifier.sandbox.protocol import Role
from services.verifier.sandbox.session import Session, Sessions

_INFRASTRUCTURE = ("080", "57P", "58", "53100", "XX001", "XX002")
"""SQLSTATE beginnings that are not the statement's doing: connection lost, server going or coming, system error, disk
full (temporary files have a limit of their own, 53400), data or index corrupted."""


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
    """As profile `standard` reads them."""
    texts: Sequence[tuple[str | None, ...]] = ()
    """The rows as Postgres printed them."""
    oids: Sequence[int] = ()
    """The columns' types."""
    size_bytes: int = 0
    exec_ms: float = 0.0
    failure: Failure | None = None
    reason: str = ""
    sqlstate: str | None = None
    """Postgres' code of an SQL error."""
    crashed: bool = False
    """Its session ended under it: the backend or the whole server died."""


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
        answer = session.run(sql, limits.rows, limits.bytes)
    except psycopg.Error as error:
        answer = Answer(error=error)
    exec_ms = (time.perf_counter() - started) * 1000
    if answer.over:
        return Outcome(exec_ms=exec_ms, failure=Failure.OVERSIZED, reason=f"more than {answer.over}")
    if answer.error is not None:
        return replace(_failure(session, answer.error), exec_ms=exec_ms)
    rows = DecodedRows(answer.rows, answer.oids)
    return Outcome(answer.columns, rows, answer.rows, answer.oids, answer.size_bytes, exec_ms)


def _failure(session: Session, error: psycopg.Error) -> Outcome:
    state = error.sqlstate
    terminated = session.running is not None and session.running.terminated
    if terminated or isinstance(error, errors.QueryCanceled):
        return Outcome(failure=Failure.TIMEOUT, reason="did not finish within the statement timeout")
    crashed = session.connection.broken
    if crashed or (state or "080").startswith(_INFRASTRUCTURE):
        reason = f"the sandbox's Postgres failed: {_first_line(error)}"
        return Outcome(failure=Failure.INFRASTRUCTURE, reason=reason, crashed=crashed)
    return Outcome(failure=Failure.SQL_ERROR, reason=_first_line(error), sqlstate=state)


def _first_line(error: psycopg.Error) -> str:
    message = error.diag.message_primary or str(error)
    return message.strip().splitlines()[0][:300] if message.strip() else type(error).__name__
