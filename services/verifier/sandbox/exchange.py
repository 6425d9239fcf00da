"""One statement on the wire: by the extended protocol, rows one by one up to a limit, and the session's reset behind it
in the same round trip. Blocking.

The statement is alone before its Sync, so it is a transaction of its own, READ ONLY by the session's pinned default.
Rows come one by one because chunks of rows of 50 MB each would all be held. Uses psycopg's generators, which are not
its public interface: the version is pinned.
"""

from dataclasses import dataclass, field

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.generators import fetch, send
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

RESET = b"DISCARD ALL"
"""Ends all that Postgres keeps in a session, but for what `Answer.reusable` speaks of."""

CANCEL_SECONDS = 2.0
"""For a statement whose further rows are not wanted."""

Row = tuple[str | None, ...]

_ONE_ROW = ExecStatus.SINGLE_TUPLE


@dataclass
class Answer:
    """What came of a statement."""

    columns: tuple[str, ...] = ()
    oids: list[int] = field(default_factory=list)
    """Columns and their types; empty when no row came."""
    rows: list[Row] = field(default_factory=list)
    """As Postgres printed them."""
    size_bytes: int = 0
    """Characters of all cells, which is bytes for most text."""
    over: str = ""
    """`200 rows` or `1000000 bytes` when a limit was passed."""
    error: psycopg.Error | None = None
    reusable: bool = False
    """The session was reset and the statement was a SELECT or failed: what DISCARD ALL leaves (names of placeholder
    settings) takes another kind of statement to plant."""


def exchange(connection: psycopg.Connection[Row], sql: str, row_limit: int, byte_limit: int) -> Answer:
    """Run one statement and reset the session. Raises psycopg.Error when the connection fails."""
    libpq = connection.pgconn
    libpq.enter_pipeline_mode()
    for query in (sql.encode(), RESET):
        libpq.send_query_params(query, None)
        libpq.pipeline_sync()
    libpq.set_single_row_mode()  # of the first
    answer = Answer()
    connection.wait(_read(connection, answer, row_limit, byte_limit))
    if answer.over:
        connection.cancel_safe(timeout=CANCEL_SECONDS)
        connection.wait(_skip(libpq, answer))
    if answer.reusable:
        libpq.exit_pipeline_mode()
    return answer


def _read(connection: psycopg.Connection[Row], answer: Answer, row_limit: int, byte_limit: int) -> PQGen[None]:
    """Fill the answer, to the end of the reset or to a limit."""
    libpq, rows = connection.pgconn, answer.rows
    transformer = Transformer(connection)
    is_select = True
    yield from send(libpq)
    while (result := (yield from fetch(libpq))) is not None:
        status = result.status
        if status == _ONE_ROW:
            transformer.set_pgresult(result, set_loaders=not rows)
            if not rows:
                _describe(answer, result)
            row: Row = transformer.load_row(0, tuple)
            rows.append(row)
            answer.size_bytes += sum(map(len, filter(None, row)))
            if len(rows) > row_limit or answer.size_bytes > byte_limit:
                answer.over = f"{row_limit} rows" if len(rows) > row_limit else f"{byte_limit} bytes"
                return
        elif status == ExecStatus.TUPLES_OK:
            is_select = (result.command_status or b"").startswith(b"SELECT")
        elif status == ExecStatus.FATAL_ERROR:
            answer.error = errors.error_from_result(result)
        elif status == ExecStatus.COMMAND_OK:
            answer.error = errors.FeatureNotSupported("the statement returns no rows")
            is_select = False
        else:  # COPY has taken the connection over
            raise errors.FeatureNotSupported("the statement is no query")
    try:
        answer.reusable = (yield from _read_reset(libpq)) and is_select
    except psycopg.Error:
        if answer.error is None:
            raise


def _describe(answer: Answer, result: PGresult) -> None:
    answer.columns = tuple((result.fname(index) or b"").decode() for index in range(result.nfields))
    answer.oids = [result.ftype(index) for index in range(result.nfields)]


def _skip(libpq: PGconn, answer: Answer) -> PQGen[None]:
    """Past the rows that were under way and the statement's end to the end of the reset."""
    while (yield from fetch(libpq)) is not None:
        pass
    answer.reusable = yield from _read_reset(libpq)


def _read_reset(libpq: PGconn) -> PQGen[bool]:
    """Both Syncs and the reset between them. Whether it succeeded."""
    done = False
    syncs = ends = 0
    while syncs < 2:
        result = yield from fetch(libpq)
        if result is None:
            ends += 1
            if ends > 1:
                raise errors.ConnectionFailure("the server went away")
        elif result.status == ExecStatus.PIPELINE_SYNC:
            syncs += 1
        else:
            done = result.status == ExecStatus.COMMAND_OK
    return done
