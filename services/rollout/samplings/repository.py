"""The ledger's queries: samplings and what lands in them."""

from collections.abc import Sequence
from typing import cast

from psycopg.rows import class_row
from psycopg.types.json import Json, Jsonb

from services.rollout.ledger import Connection, Ledger, patient
from services.rollout.samplings.records import (
    Fence,
    MissingGroup,
    NewSampling,
    PlannedTask,
    Policy,
    SamplingRecord,
)
from services.rollout.worker.completion import thought
from services.rollout.worker.groups import Landed, Sample
from shared.contracts.rollout import Purpose, SamplingRequest, SamplingState
from shared.errors import Conflict
from shared.unicode import storable

_SAMPLING = """
SELECT s.*,
    (SELECT coalesce(jsonb_object_agg(reason, samples), '{}') FROM rollout.rerolls r
     WHERE r.sampling_id = s.sampling_id) AS rerolls,
    (SELECT coalesce(jsonb_object_agg(reason, samples), '{}') FROM
        (SELECT reason, sum(samples) AS samples FROM rollout.losses l WHERE l.sampling_id = s.sampling_id
         GROUP BY reason) AS losses) AS lost
FROM rollout.samplings s
"""

_LAND = """
WITH prompted AS (
    UPDATE rollout.groups SET prompt_token_ids = %(prompt_token_ids)s
    WHERE sampling_id = %(sampling_id)s AND task_id = %(task_id)s AND prompt_token_ids = '{}'
), new AS (
    INSERT INTO rollout.rows (sampling_id, task_id, sample_index, reply, thought, token_ids, logprobs, finish_reason,
        sample_ms, verify_ms, status, reward, sql, reason, served_model, adapter_digest, sqlstate, reported_tokens)
    SELECT %(sampling_id)s, %(task_id)s, sample_index, reply, thought, token_ids, logprobs, finish_reason,
        %(sample_ms)s, %(verify_ms)s, status, reward, sql, reason, %(served_model)s, %(adapter_digest)s, sqlstate,
        reported_tokens
    FROM json_to_recordset(%(samples)s) AS sample (
        sample_index integer, reply text, thought boolean, token_ids integer[], logprobs double precision[],
        finish_reason text, status text, reward double precision, sql text, reason text, sqlstate text,
        reported_tokens integer)
    ON CONFLICT (sampling_id, task_id, sample_index) DO NOTHING
    RETURNING coalesce(reported_tokens, tokens) AS tokens
), counted AS (
    SELECT count(*)::integer AS landed, coalesce(sum(tokens), 0) AS tokens FROM new
)
UPDATE rollout.samplings s SET landed = s.landed + counted.landed, tokens = s.tokens + counted.tokens
FROM counted WHERE s.sampling_id = %(sampling_id)s RETURNING counted.landed
"""
"""One statement a group, samples as JSON: a round trip and an array of numbers cost more than all else here."""


class Fenced(Conflict):
    """A newer attempt of the run has begun."""

    title = "An older attempt of the run"


def _record(row: dict[str, object]) -> SamplingRecord:
    fields = {name: row[name] for name in SamplingRecord.__dataclass_fields__ if name in row}
    fields["request"] = SamplingRequest.model_validate(row["request"])
    fields["policy"] = Policy(str(row["policy_name"]), str(row["adapter_digest"]))
    fields["state"] = SamplingState(str(row["state"]))
    return SamplingRecord(**fields)  # type: ignore[arg-type]  # columns are typed by the migration


class Repository(Ledger):
    """Samplings, their pinned tasks, rows, losses."""

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

    async def newest_evaluation(self, policy: str, domain: str | None) -> str | None:
        """Id of the policy's newest finished evaluation, on a domain or any, that was not withdrawn."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT sampling_id FROM rollout.samplings WHERE request->>'policy' = %s AND purpose = %s "
                "AND state = %s AND void_reason IS NULL AND (%s::text IS NULL OR domain = %s) "
                "ORDER BY finished_at DESC LIMIT 1",
                [policy, Purpose.EVALUATION, SamplingState.DONE, domain, domain],
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
        values = {
            "sampling_id": sampling_id,
            "task_id": task_id,
            "prompt_token_ids": landed.prompt_token_ids,
            "sample_ms": landed.sample_ms,
            "verify_ms": landed.verify_ms,
            "served_model": landed.served_model,
            "adapter_digest": landed.adapter_digest,
            "samples": Json([_sample_values(sample) for sample in landed.samples]),
        }
        async with self._pool.connection() as connection:
            if fence is None:
                return await _land(connection, values)
            async with connection.transaction():
                await check_fence(connection, fence)
                return await _land(connection, values)

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


async def _land(connection: Connection, values: dict[str, object]) -> int:
    row = await (await connection.execute(_LAND, values)).fetchone()
    return 0 if row is None else cast(int, row["landed"])


def _sample_values(sample: Sample) -> dict[str, object]:
    return {
        "sample_index": sample.sample_index,
        "reply": storable(sample.reply),
        "thought": thought(sample.reply),
        "token_ids": sample.token_ids,
        "logprobs": sample.logprobs,
        "finish_reason": sample.finish_reason,
        "status": sample.status,
        "reward": sample.reward,
        "sql": None if sample.sql is None else storable(sample.sql),
        "reason": storable(sample.reason),
        "sqlstate": sample.sqlstate,
        "reported_tokens": sample.reported_tokens,
    }


async def check_fence(connection: Connection, fence: Fence) -> None:
    """Holds the fence until the transaction ends. Raises Fenced for an older attempt."""
    query = "SELECT attempt FROM rollout.fences WHERE run_id = %s FOR SHARE"
    row = await (await connection.execute(query, [fence.run_id])).fetchone()
    if row is None or row["attempt"] != fence.attempt:
        newest = "another" if row is None else row["attempt"]
        raise Fenced(
            f"attempt {fence.attempt} of run {fence.run_id} may not write: attempt {newest} has begun. "
            "Rows that landed are kept; stop this process"
        )


async def insert_sampling(connection: Connection, new: NewSampling) -> None:
    """The sampling and its pinned tasks, unless it exists."""
    request = new.request
    cursor = await connection.execute(
        "INSERT INTO rollout.samplings (sampling_id, request, purpose, domain, policy_name, adapter_digest, "
        "task_set_digest, system_prompt, prompt_hash, state, wanted, bundle_digest) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
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
            new.bundle_digest,
        ],
    )
    if cursor.rowcount:
        await insert_tasks(connection, request.sampling_id, new.tasks)


async def insert_tasks(connection: Connection, sampling_id: str, tasks: Sequence[PlannedTask]) -> None:
    """Pin the tasks of a sampling."""
    planned = [vars(task) | {"position": position} for position, task in enumerate(tasks)]
    await connection.execute(
        "INSERT INTO rollout.groups (sampling_id, task_id, position, question, archetype, difficulty, style, split) "
        "SELECT %s, task_id, position, question, archetype, difficulty, style, split FROM json_to_recordset(%s) "
        "AS task (task_id text, position integer, question text, archetype text, difficulty text, style text, "
        "split text)",
        [sampling_id, Json(planned)],
    )
