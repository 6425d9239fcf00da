"""The ledger's queries: samplings and what lands in them. Every write waits two minutes for a database that is away."""

from collections.abc import Sequence

import psycopg
import stamina
from psycopg.rows import class_row
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from services.rollout.completion import thought
from services.rollout.groups import Landed
from services.rollout.records import (
    Fence,
    MissingGroup,
    NewSampling,
    PlannedTask,
    Policy,
    SamplingRecord,
)
from shared.contracts.rollout import Purpose, SamplingRequest, SamplingState
from shared.database import Pool
from shared.errors import Conflict

patient = stamina.retry(
    on=(psycopg.OperationalError, PoolTimeout), attempts=None, timeout=120.0, wait_initial=0.2, wait_max=5.0
)
"""Writes that must not be lost are repeated while the database is away; all of them are idempotent."""

_SAMPLING = """
SELECT s.*,
    (SELECT coalesce(sum(samples), 0) FROM rollout.rerolls r WHERE r.sampling_id = s.sampling_id) AS rerolled,
    (SELECT coalesce(jsonb_object_agg(reason, samples), '{}') FROM
        (SELECT reason, sum(samples) AS samples FROM rollout.losses l WHERE l.sampling_id = s.sampling_id
         GROUP BY reason) AS losses) AS lost
FROM rollout.samplings s
"""

_INSERT_ROW = """
INSERT INTO rollout.rows (sampling_id, task_id, sample_index, reply, thought, token_ids, logprobs, finish_reason,
    sample_ms, verify_ms, status, reward, sql, reason, served_model, adapter_digest)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (sampling_id, task_id, sample_index) DO NOTHING
"""


class Fenced(Conflict):
    """A newer attempt of the run has begun."""

    title = "An older attempt of the run"


def storable(text: str) -> str:
    """Text as Postgres can hold it: a NUL byte, which a model may write, becomes U+FFFD."""
    return text.replace("\x00", "\ufffd")


def _record(row: dict[str, object]) -> SamplingRecord:
    fields = {name: row[name] for name in SamplingRecord.__dataclass_fields__ if name in row}
    fields["request"] = SamplingRequest.model_validate(row["request"])
    fields["policy"] = Policy(str(row["policy_name"]), str(row["adapter_digest"]))
    fields["state"] = SamplingState(str(row["state"]))
    return SamplingRecord(**fields)  # type: ignore[arg-type]  # columns are typed by the migration


class Repository:
    """Samplings, their pinned tasks, rows, losses."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, sampling_id: str) -> SamplingRecord | None:
        """One sampling."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(f"{_SAMPLING} WHERE s.sampling_id = %s", [sampling_id])
            row = await cursor.fetchone()
        return None if row is None else _record(row)

    async def newest(self, limit: int) -> list[SamplingRecord]:
        """Samplings that are no training batches, newest first."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                f"{_SAMPLING} WHERE s.purpose <> %s ORDER BY s.created_at DESC LIMIT %s", [Purpose.BATCH, limit]
            )
            return [_record(row) for row in await cursor.fetchall()]

    @patient
    async def void(self, sampling_id: str, reason: str) -> None:
        """Mark it withdrawn."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE rollout.samplings SET void_reason = %s WHERE sampling_id = %s", [storable(reason), sampling_id]
            )

    async def newest_evaluation(self, policy: str) -> str | None:
        """Id of the policy's newest finished evaluation that was not withdrawn."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT sampling_id FROM rollout.samplings WHERE request->>'policy' = %s AND purpose = %s "
                "AND state = %s AND void_reason IS NULL ORDER BY finished_at DESC LIMIT 1",
                [policy, Purpose.EVALUATION, SamplingState.DONE],
            )
            row = await cursor.fetchone()
        return None if row is None else str(row["sampling_id"])

    async def unfinished(self) -> list[str]:
        """Ids of samplings to go on with after a restart; training batches are asked for again by their run."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT sampling_id FROM rollout.samplings WHERE state = ANY(%s) AND purpose <> %s ORDER BY created_at",
                [[SamplingState.RUNNING, SamplingState.PAUSED], Purpose.BATCH],
            )
            return [str(row["sampling_id"]) for row in await cursor.fetchall()]

    @patient
    async def create(self, new: NewSampling) -> None:
        """Write a sampling and its tasks; one that exists is left as it is."""
        async with self._pool.connection() as connection, connection.transaction():
            await insert_sampling(connection, new)

    @patient
    async def set_state(self, sampling_id: str, state: SamplingState, error: str = "") -> None:
        """Where it stands; a final state gets its time."""
        finished = state not in (SamplingState.RUNNING, SamplingState.PAUSED)
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE rollout.samplings SET state = %s, error = %s, finished_at = CASE WHEN %s THEN now() END "
                "WHERE sampling_id = %s",
                [state, storable(error), finished, sampling_id],
            )

    @patient
    async def forget_losses(self, sampling_id: str) -> None:
        """Samples given up are asked for once more."""
        async with self._pool.connection() as connection:
            await connection.execute("DELETE FROM rollout.losses WHERE sampling_id = %s", [sampling_id])

    @patient
    async def add_rerolls(self, sampling_id: str, reason: str, samples: int) -> None:
        """Count samples asked for again."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "INSERT INTO rollout.rerolls AS r VALUES (%s, %s, %s) "
                "ON CONFLICT (sampling_id, reason) DO UPDATE SET samples = r.samples + excluded.samples",
                [sampling_id, reason, samples],
            )

    @patient
    async def add_loss(self, sampling_id: str, task_id: str, reason: str, detail: str, samples: int) -> None:
        """Count samples given up."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "INSERT INTO rollout.losses VALUES (%s, %s, %s, %s, %s) ON CONFLICT (sampling_id, task_id) DO UPDATE "
                "SET reason = excluded.reason, detail = excluded.detail, samples = excluded.samples",
                [sampling_id, task_id, reason, storable(detail), samples],
            )

    async def loss_detail(self, sampling_id: str) -> str:
        """What the engine or author said of one lost group; empty when nothing was lost."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT reason || ': ' || detail AS detail FROM rollout.losses WHERE sampling_id = %s LIMIT 1",
                [sampling_id],
            )
            row = await cursor.fetchone()
        return "" if row is None else str(row["detail"])

    @patient
    async def land(self, sampling_id: str, task_id: str, landed: Landed, fence: Fence | None = None) -> int:
        """Write a group's rows, all or none; rows that exist stay. Returns how many were new. Raises Fenced."""
        async with self._pool.connection() as connection, connection.transaction():
            if fence is not None:
                await check_fence(connection, fence)
            await connection.execute(
                "UPDATE rollout.groups SET prompt_token_ids = %s "
                "WHERE sampling_id = %s AND task_id = %s AND prompt_token_ids = '{}'",
                [landed.prompt_token_ids, sampling_id, task_id],
            )
            async with connection.cursor() as cursor:
                await cursor.executemany(_INSERT_ROW, _row_values(sampling_id, task_id, landed))
                new = cursor.rowcount
            tokens = landed.tokens if new else 0
            await connection.execute(
                "UPDATE rollout.samplings SET landed = landed + %s, tokens = tokens + %s WHERE sampling_id = %s",
                [new, tokens, sampling_id],
            )
        return new

    async def missing(self, sampling_id: str, k: int) -> list[MissingGroup]:
        """Groups with samples that have no row, in the sampling's order."""
        query = """
            SELECT g.task_id, question, archetype, difficulty, style, split,
                array_agg(wanted.sample_index ORDER BY wanted.sample_index) AS sample_indices
            FROM rollout.groups g CROSS JOIN generate_series(0, %s - 1) AS wanted(sample_index)
            LEFT JOIN rollout.rows r ON r.sampling_id = g.sampling_id AND r.task_id = g.task_id
                AND r.sample_index = wanted.sample_index
            WHERE g.sampling_id = %s AND r.row_id IS NULL
            GROUP BY g.sampling_id, g.task_id ORDER BY g.position
        """
        async with self._pool.connection() as connection:
            rows = await (await connection.execute(query, [k, sampling_id])).fetchall()
        names = PlannedTask.__dataclass_fields__
        return [
            MissingGroup(PlannedTask(**{name: str(row[name]) for name in names}), tuple(row["sample_indices"]))  # type: ignore[arg-type]  # int[]
            for row in rows
        ]

    async def tasks(self, sampling_id: str) -> list[PlannedTask]:
        """The tasks a sampling asks, in order."""
        async with (
            self._pool.connection() as connection,
            connection.cursor(row_factory=class_row(PlannedTask)) as cursor,
        ):
            await cursor.execute(
                "SELECT task_id, question, archetype, difficulty, style, split FROM rollout.groups "
                "WHERE sampling_id = %s ORDER BY position",
                [sampling_id],
            )
            return await cursor.fetchall()


def _row_values(sampling_id: str, task_id: str, landed: Landed) -> list[tuple[object, ...]]:
    return [
        (
            sampling_id,
            task_id,
            sample.sample_index,
            storable(sample.reply),
            thought(sample.reply),
            sample.token_ids,
            sample.logprobs,
            sample.finish_reason,
            landed.sample_ms,
            landed.verify_ms,
            sample.status,
            sample.reward,
            None if sample.sql is None else storable(sample.sql),
            storable(sample.reason),
            landed.served_model,
            landed.adapter_digest,
        )
        for sample in landed.samples
    ]


async def check_fence(connection: psycopg.AsyncConnection[dict[str, object]], fence: Fence) -> None:
    """Holds the fence until the transaction ends. Raises Fenced for an older attempt."""
    query = "SELECT attempt FROM rollout.fences WHERE run_id = %s FOR SHARE"
    row = await (await connection.execute(query, [fence.run_id])).fetchone()
    if row is None or row["attempt"] != fence.attempt:
        newest = "another" if row is None else row["attempt"]
        raise Fenced(
            f"attempt {fence.attempt} of run {fence.run_id} may not write: attempt {newest} has begun. "
            "Rows that landed are kept; stop this process"
        )


async def insert_sampling(connection: psycopg.AsyncConnection[dict[str, object]], new: NewSampling) -> None:
    """The sampling and its pinned tasks, unless it exists."""
    request = new.request
    cursor = await connection.execute(
        "INSERT INTO rollout.samplings (sampling_id, request, purpose, domain, policy_name, adapter_digest, "
        "task_set_digest, system_prompt, prompt_hash, state, wanted) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
        [
            request.sampling_id,
            Jsonb(request.model_dump(mode="json")),
            request.purpose,
            request.domain,
            new.policy.served_model,
            new.policy.adapter_digest,
            new.task_set_digest,
            new.system_prompt,
            new.prompt_hash,
            SamplingState.RUNNING,
            len(new.tasks) * request.parameters.k,
        ],
    )
    if cursor.rowcount:
        await insert_tasks(connection, request.sampling_id, new.tasks)


async def insert_tasks(
    connection: psycopg.AsyncConnection[dict[str, object]], sampling_id: str, tasks: Sequence[PlannedTask]
) -> None:
    """Pin the tasks of a sampling."""
    async with connection.cursor() as many:
        await many.executemany(
            "INSERT INTO rollout.groups (sampling_id, task_id, position, question, archetype, difficulty, style, "
            "split) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            [
                (sampling_id, t.task_id, position, t.question, t.archetype, t.difficulty, t.style, t.split)
                for position, t in enumerate(tasks)
            ],
        )
