"""Queries of people's decisions in the control database."""

from typing import Any

from psycopg.types.json import Jsonb

from services.author.decisions import Decided
from services.author.documents import Document, evidence_document, judged_from, proposal_document, proposal_from
from services.author.judged import Judged
from shared.contracts.review import Action, Decision, StoredDecision
from shared.database import Pool


class ReviewRepository:
    """Decisions: added, never changed."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def add(self, domain: str, decision: Decision, question: str, edited: Judged | None) -> None:
        """Store a decision on `question`."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "INSERT INTO author.decisions (domain, task_id, action, question, edited, decided_by, note)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (
                    *(domain, decision.task_id, decision.action, question),
                    None if edited is None else Jsonb(_document(edited)),
                    *(decision.decided_by, decision.note),
                ),
            )

    async def decided(self, domain: str) -> dict[str, Decided]:
        """The newest decision on each question of a domain, by task id."""
        return {
            row["task_id"]: Decided(Action(row["action"]), None if row["edited"] is None else _edited(row["edited"]))
            for row in await self._newest(domain)
        }

    async def stored(self, domain: str) -> dict[str, StoredDecision]:
        """The same for people: who and when."""
        names = StoredDecision.model_fields
        return {
            row["task_id"]: StoredDecision.model_validate({name: row[name] for name in names})
            for row in await self._newest(domain)
        }

    async def _newest(self, domain: str) -> list[dict[str, Any]]:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT DISTINCT ON (task_id) * FROM author.decisions WHERE domain = %s"
                " ORDER BY task_id, decision_id DESC",
                (domain,),
            )
            return await cursor.fetchall()


def _document(judged: Judged) -> Document:
    return {
        "proposal": proposal_document(judged.proposal),
        "reason": judged.reason,
        "evidence": evidence_document(judged),
    }


def _edited(document: Document) -> Judged:
    return judged_from(0, proposal_from(document["proposal"]), document["reason"], document["evidence"])
