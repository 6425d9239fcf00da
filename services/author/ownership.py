"""Who runs an authoring: the holder of an advisory lock in the control database, so never two authors at once.

The lock lives as long as its connection: a killed author gives it up at once, one whose machine vanished within half a
minute (the server's keepalives). Writes that must not happen twice go through that connection.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

RECONNECT_SECONDS = 30.0
"""How long a lost control database is waited for."""

_KEEPALIVES = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"

Connection = psycopg.AsyncConnection[dict[str, Any]]


class OwnedElsewhere(Exception):
    """Another author runs this authoring."""


class Ownership:
    """The right to run one authoring, and the connection that proves it."""

    def __init__(self, dsn: str, authoring_id: str, connection: Connection) -> None:
        self._dsn = dsn
        self._authoring_id = authoring_id
        self._connection = connection
        self._mending = asyncio.Lock()

    @classmethod
    async def take(cls, dsn: str, authoring_id: str, patience_seconds: float = 0.0) -> "Ownership":
        """Take it, or wait a little for an owner that has just been killed to be noticed.

        Raises OwnedElsewhere, psycopg.OperationalError.
        """
        deadline = asyncio.get_running_loop().time() + patience_seconds
        while True:
            try:
                return cls(dsn, authoring_id, await _connect(dsn, authoring_id))
            except OwnedElsewhere:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(0.1)

    async def release(self) -> None:
        """Give it up; again is no error."""
        with contextlib.suppress(psycopg.Error):  # unlocked first: a closed connection's server lingers for a moment
            await _execute(self._connection, "SELECT pg_advisory_unlock_all()", ())
        await self._connection.close()

    async def execute(self, query: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        """Run a statement as the owner; rows where it returns any.

        A lost connection is mended and the lock taken anew, then the statement is run again: it must bear that.
        Raises OwnedElsewhere when another author was faster, psycopg.Error.
        """
        connection = self._connection
        try:
            return await _execute(connection, query, parameters)
        except psycopg.OperationalError:
            if not connection.closed:
                raise
        await self._mend(connection)
        return await _execute(self._connection, query, parameters)

    async def _mend(self, broken: Connection) -> None:
        async with self._mending:
            if self._connection is not broken:
                return
            deadline = asyncio.get_running_loop().time() + RECONNECT_SECONDS
            while True:
                try:
                    self._connection = await _connect(self._dsn, self._authoring_id)
                    return
                except psycopg.OperationalError:
                    if asyncio.get_running_loop().time() > deadline:
                        raise
                    await asyncio.sleep(0.5)


async def _connect(dsn: str, authoring_id: str) -> Connection:
    connection = await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, row_factory=dict_row, options=_KEEPALIVES, connect_timeout=5
    )
    try:
        [row] = await _execute(
            connection, "SELECT pg_try_advisory_lock(hashtextextended(%s, 0)) AS taken", (f"authoring {authoring_id}",)
        )
    except BaseException:
        await connection.close()
        raise
    if not row["taken"]:
        await connection.close()
        raise OwnedElsewhere(f"another author runs {authoring_id!r}")
    return connection


async def _execute(connection: Connection, query: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
    cursor = await connection.execute(query, parameters)
    return await cursor.fetchall() if cursor.description else []
