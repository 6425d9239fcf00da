"""Reading the ledger's rows: whole, one, or the facts that figures are made of."""

from collections.abc import AsyncIterator
from typing import Any

from psycopg.rows import class_row, dict_row

from services.rollout.measuring.scan import Rewarded
from services.rollout.samplings.records import RowFacts, SamplingRecord
from shared.contracts.rollout import Row
from shared.database import Pool
from shared.domain import chat

ROWS_PER_FETCH = 200

_ROW = """
SELECT r.row_id, r.sampling_id, r.task_id, sample_index, question, reply, prompt_token_ids, token_ids,
    logprobs, finish_reason, sample_ms, verify_ms, status, reward, sql, reason, served_model, adapter_digest, landed_at,
    sqlstate, split, reported_tokens
FROM rollout.rows r JOIN rollout.groups g USING (sampling_id, task_id)
"""


def _row(record: SamplingRecord, columns: dict[str, Any]) -> Row:
    messages = chat(record.system_prompt, columns.pop("question"))
    return Row(messages=messages, prompt_hash=record.prompt_hash, **columns)


class RowRepository:
    """Rows that have landed. Writing them is `repository.Repository.land`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def facts(self, sampling_id: str) -> list[RowFacts]:
        """What reports and deltas need of every row that has landed."""
        async with self._pool.connection() as connection, connection.cursor(row_factory=class_row(RowFacts)) as cursor:
            await cursor.execute(
                "SELECT task_id, status, finish_reason, md5(reply) AS reply_digest, thought, row_id, sqlstate, "
                "sample_ms, coalesce(reported_tokens, tokens) AS tokens FROM rollout.rows WHERE sampling_id = %s "
                "ORDER BY row_id",
                [sampling_id],
            )
            return await cursor.fetchall()

    async def sampling_of_row(self, row_id: int) -> str | None:
        """Which sampling a row belongs to."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute("SELECT sampling_id FROM rollout.rows WHERE row_id = %s", [row_id])
            row = await cursor.fetchone()
        return None if row is None else str(row["sampling_id"])

    async def row(self, record: SamplingRecord, row_id: int) -> Row:
        """One row of a sampling that has it."""
        async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(f"{_ROW} WHERE r.sampling_id = %s AND r.row_id = %s", [record.sampling_id, row_id])
            return _row(record, (await cursor.fetchall())[0])

    async def rewarded(self, sampling_id: str) -> list[Rewarded]:
        """Rows with reward 1 that have a statement, oldest first."""
        async with self._pool.connection() as connection, connection.cursor(row_factory=class_row(Rewarded)) as cursor:
            await cursor.execute(
                "SELECT row_id, task_id, sql FROM rollout.rows WHERE sampling_id = %s AND reward = 1 "
                "AND sql IS NOT NULL ORDER BY row_id",
                [sampling_id],
            )
            return await cursor.fetchall()

    async def rows(self, record: SamplingRecord, task_id: str | None = None) -> AsyncIterator[Row]:
        """Rows that have landed, oldest first; of one task when given. Reads in small steps, so memory stays flat."""
        of_task = "" if task_id is None else "AND r.task_id = %(task_id)s"
        query = f"""{_ROW}
            WHERE r.sampling_id = %(sampling_id)s AND r.row_id > %(last)s {of_task} ORDER BY r.row_id LIMIT %(limit)s
        """
        values = {"sampling_id": record.sampling_id, "task_id": task_id, "limit": ROWS_PER_FETCH}
        last = 0
        while True:
            async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(query, values | {"last": last})
                found = await cursor.fetchall()
            for row in found:
                last = row["row_id"]
                yield _row(record, row)
            if len(found) < ROWS_PER_FETCH:
                return
