"""The calls of one authoring in the control database: see `teachers.metered.Ledger`."""

from dataclasses import asdict
from typing import Any

from psycopg.types.json import Jsonb

from services.author.ownership import Ownership
from services.author.teachers.cells import Cell
from services.author.teachers.endpoint import Completion, Outcome
from services.author.teachers.metered import Call, StoredCall
from services.author.teachers.pricing import Usage
from shared.contracts.tasks import Archetype, Difficulty
from shared.unicode import storable


class StoredLedger:
    """Reads and writes as the owner of the authoring: once another author has taken it, every call raises."""

    def __init__(self, owner: Ownership, authoring_id: str) -> None:
        self._owner = owner
        self._authoring_id = authoring_id

    async def find(self, key: str) -> StoredCall | None:
        """One call."""
        rows = await self._owner.execute(
            "SELECT * FROM author.calls WHERE authoring_id = %s AND call_key = %s", (self._authoring_id, key)
        )
        return _stored(rows[0]) if rows else None

    async def proposing(self) -> list[StoredCall]:
        """Every proposing call, by number."""
        rows = await self._owner.execute(
            "SELECT * FROM author.calls WHERE authoring_id = %s AND purpose = 'propose' ORDER BY number",
            (self._authoring_id,),
        )
        return [_stored(row) for row in rows]

    async def spent_usd(self) -> float:
        """Paid and in doubt together."""
        [row] = await self._owner.execute(
            "SELECT coalesce(sum(coalesce(cost_usd, 0) + doubt_usd), 0) AS usd FROM author.calls"
            " WHERE authoring_id = %s",
            (self._authoring_id,),
        )
        return float(row["usd"])

    async def intend(self, call: Call, prompt_hash: str, doubt_usd: float, doubted: bool) -> None:
        """See `Ledger`."""
        cell = call.cell
        await self._owner.execute(
            "INSERT INTO author.calls AS c (authoring_id, call_key, purpose, number, archetype, difficulty, proposals,"
            " prompt_hash, request, state) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 'sent')"
            " ON CONFLICT (authoring_id, call_key) DO UPDATE SET state = 'sent', sent_at = now(),"
            " doubt_usd = c.doubt_usd + %s, doubts = c.doubts + %s WHERE c.state <> 'landed'",
            (
                self._authoring_id,
                call.key,
                call.purpose,
                call.number,
                None if cell is None else cell.archetype,
                None if cell is None else cell.difficulty,
                call.proposals,
                prompt_hash,
                call.user,
                doubt_usd,
                int(doubted),
            ),
        )

    async def arrived(self, key: str, text: str) -> None:
        """See `Ledger`."""
        await self._owner.execute(
            "UPDATE author.calls SET reply = %s WHERE authoring_id = %s AND call_key = %s AND state = 'sent'",
            (storable(text), self._authoring_id, key),
        )

    async def land(self, key: str, model: str, completion: Completion, cost_usd: float | None) -> None:
        """See `Ledger`."""
        await self._owner.execute(
            "UPDATE author.calls SET state = 'landed', reply = %s, outcome = %s, usage = %s, cost_usd = %s, model = %s,"
            " landed_at = now() WHERE authoring_id = %s AND call_key = %s AND state <> 'landed'",
            (
                storable(completion.text),
                completion.outcome,
                Jsonb(asdict(completion.usage)),
                cost_usd,
                model,
                self._authoring_id,
                key,
            ),
        )

    async def withdraw(self, key: str) -> None:
        """See `Ledger`."""
        await self._owner.execute(
            "UPDATE author.calls SET state = 'withdrawn' WHERE authoring_id = %s AND call_key = %s AND state = 'sent'",
            (self._authoring_id, key),
        )


def _stored(row: dict[str, Any]) -> StoredCall:
    cell = None if row["archetype"] is None else Cell(Archetype(row["archetype"]), Difficulty(row["difficulty"]))
    call = Call(row["call_key"], row["purpose"], row["request"], row["number"], cell, row["proposals"])
    completion = None
    if row["state"] == "landed":
        completion = Completion(row["reply"], Outcome(row["outcome"]), Usage(**row["usage"]))
    return StoredCall(call, row["state"] == "sent", row["reply"], completion)
