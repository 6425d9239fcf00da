"""Queries of `inference.alias_moves`: an alias is where its newest move that was not undone put it."""

from psycopg.types.json import Jsonb

from shared.contracts.inference import Alias, AliasRequest
from shared.database import Pool

_ALIASES = """
    SELECT DISTINCT ON (alias) alias AS name, policy, model, delta, moved_at, (
        SELECT policy FROM inference.alias_moves older
        WHERE older.alias = move.alias AND NOT older.undone AND older.move_id < move.move_id
        ORDER BY older.move_id DESC LIMIT 1
    ) AS previous
    FROM inference.alias_moves move WHERE NOT undone
    ORDER BY alias, move_id DESC
"""


class AliasRepository:
    """The moves, newest first."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def all(self) -> list[Alias]:
        """Where each alias is, by name."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_ALIASES)
            return [Alias.model_validate(row) for row in await cursor.fetchall()]

    async def move(self, name: str, model: str, request: AliasRequest) -> None:
        """A new newest move."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "INSERT INTO inference.alias_moves (alias, policy, model, delta) VALUES (%s, %s, %s, %s)",
                [name, request.policy, model, Jsonb(request.delta.model_dump(mode="json"))],
            )

    async def undo(self, name: str) -> None:
        """The newest move no longer counts."""
        async with self._pool.connection() as connection:
            await connection.execute(
                """UPDATE inference.alias_moves SET undone = true WHERE move_id = (
                    SELECT max(move_id) FROM inference.alias_moves WHERE alias = %s AND NOT undone
                )""",
                [name],
            )

    async def model_before(self, name: str) -> str | None:
        """The served name that an undo of the newest move goes back to."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                """SELECT model FROM inference.alias_moves WHERE alias = %s AND NOT undone
                ORDER BY move_id DESC LIMIT 1 OFFSET 1""",
                [name],
            )
            row = await cursor.fetchone()
        return None if row is None else str(row["model"])
