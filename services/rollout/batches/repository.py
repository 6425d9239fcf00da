"""The ledger's queries for training batches (the fence, exactly once per run and step) and for bands."""

from psycopg.types.json import Jsonb

from services.rollout.ledger import Ledger, patient
from services.rollout.samplings.records import Fence, NewSampling, Policy
from services.rollout.samplings.repository import Fenced, insert_sampling
from shared.contracts.measuring import Band, BandRequest
from shared.contracts.rollout import SamplingRequest
from shared.errors import Conflict


def asks_the_same(one: SamplingRequest, other: SamplingRequest) -> bool:
    """Whether rows of one request may stand for the other's: all but the seed is equal."""
    return _without_seed(one) == _without_seed(other)


def _without_seed(request: SamplingRequest) -> SamplingRequest:
    return request.model_copy(update={"parameters": request.parameters.model_copy(update={"seed": 0})})


class BatchRepository(Ledger):
    """Fences and batches. A batch's rows are those of its sampling."""

    @patient
    async def claim(self, fence: Fence, step: int, refill: int, new: NewSampling) -> None:
        """Make `fence` the run's attempt and its step's batch the one that `new` asks for.

        Rows under the same adapter and tasks stay; a newer attempt that asks for anything else starts the step afresh,
        from this refill on: the later ones followed from its rows. Raises Fenced for an older attempt, Conflict when
        one attempt asks two different things of one step.
        """
        sampling_id = new.request.sampling_id
        async with self._pool.connection() as connection, connection.transaction():
            cursor = await connection.execute(
                "INSERT INTO rollout.fences AS f VALUES (%s, %s) ON CONFLICT (run_id) DO UPDATE "
                "SET attempt = excluded.attempt WHERE f.attempt <= excluded.attempt",
                [fence.run_id, fence.attempt],
            )
            if cursor.rowcount == 0:
                raise Fenced(f"a newer attempt of run {fence.run_id} than {fence.attempt} has begun; nothing was done")
            query = (
                "SELECT s.request, s.policy_name, s.adapter_digest, b.attempt FROM rollout.batches b "
                "JOIN rollout.samplings s USING (sampling_id) "
                "WHERE b.run_id = %s AND b.step = %s AND b.refill = %s FOR UPDATE"
            )
            row = await (await connection.execute(query, [fence.run_id, step, refill])).fetchone()
            if row is not None:
                stored = SamplingRequest.model_validate(row["request"])
                policy = Policy(str(row["policy_name"]), str(row["adapter_digest"]))
                if not (policy == new.policy and asks_the_same(stored, new.request)):
                    if row["attempt"] == fence.attempt:
                        raise Conflict(
                            f"step {step} of run {fence.run_id} was asked for with another body in this attempt; "
                            "its rows are kept. Repeat the first body, or begin a new attempt"
                        )
                    cursor = await connection.execute(
                        "DELETE FROM rollout.batches WHERE run_id = %s AND step = %s AND refill >= %s "
                        "RETURNING sampling_id",
                        [fence.run_id, step, refill],
                    )
                    gone = [row["sampling_id"] for row in await cursor.fetchall()]
                    await connection.execute("DELETE FROM rollout.samplings WHERE sampling_id = ANY(%s)", [gone])
            await insert_sampling(connection, new)
            await connection.execute(
                "INSERT INTO rollout.batches VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (run_id, step, refill) DO UPDATE SET attempt = excluded.attempt",
                [fence.run_id, step, fence.attempt, sampling_id, refill],
            )

    async def find_band(self, band_id: str) -> tuple[BandRequest, Band] | None:
        """A band and what was asked for."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute("SELECT request, band FROM rollout.bands WHERE band_id = %s", [band_id])
            row = await cursor.fetchone()
        if row is None:
            return None
        return BandRequest.model_validate(row["request"]), Band.model_validate(row["band"])

    async def newest_band(self, domain: str) -> Band | None:
        """The domain's last band."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT band FROM rollout.bands WHERE band->>'domain' = %s ORDER BY cut_at DESC LIMIT 1", [domain]
            )
            row = await cursor.fetchone()
        return None if row is None else Band.model_validate(row["band"])

    @patient
    async def add_band(self, request: BandRequest, band: Band) -> None:
        """Keep a band; one that exists stays as it is."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "INSERT INTO rollout.bands (band_id, request, band) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                [request.band_id, Jsonb(request.model_dump(mode="json")), Jsonb(band.model_dump(mode="json"))],
            )
