"""A row's verdict again, with both results side by side: from the reply as the ledger holds it and today's gold."""

import contextlib

from services.rollout.grounds import Grounds
from services.rollout.samplings.records import SamplingRecord
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.contracts.measuring import Replay
from shared.contracts.rollout import Row
from shared.contracts.tasks import PrivilegedTask
from shared.contracts.verifier import (
    ExplainRequest,
    Explanation,
    Profile,
    SandboxRequest,
    Status,
    Verdict,
    VerifyItem,
    VerifyRequest,
)
from shared.errors import Conflict, NotFound, Unavailable

NOT_EXPLAINED = (Status.NO_SQL, Status.REFUSED)
"""Nothing ran, or may."""


class ReplayService:
    """Replays in a sandbox of its own: the sampling's may be in use, or gone."""

    def __init__(self, grounds: Grounds) -> None:
        self._grounds = grounds

    async def replay(self, row_id: int) -> Replay:
        """Raises NotFound, Conflict when the task is gone, Unavailable."""
        record, row = await self._row(row_id)
        task = (await self._grounds.tasks.some(record.request.domain, [row.task_id])).get(row.task_id)
        if task is None:
            raise Conflict(f"task {row.task_id} is not among the author's tasks of {record.request.domain!r} any more")
        sandbox_id = f"replay-{row_id}"
        try:
            await self._grounds.verifier.create_sandbox(
                SandboxRequest(sandbox_id=sandbox_id, run_id=sandbox_id, domain=record.request.domain)
            )
            try:
                verdict, explanation = await self._verdict(sandbox_id, record.request.profile, row, task)
            finally:
                with contextlib.suppress(ServiceProblem, ServiceUnreachable):  # the verifier's time limit removes it
                    await self._grounds.verifier.delete_sandbox(sandbox_id)
        except (ServiceProblem, ServiceUnreachable) as error:
            raise Unavailable(f"the verifier did not answer: {error}. The row is unchanged") from error
        return Replay(
            row_id=row_id,
            sampling_id=record.sampling_id,
            task_id=row.task_id,
            question=task.question,
            recorded=row.status,
            verdict=verdict,
            explanation=explanation,
        )

    async def _row(self, row_id: int) -> tuple[SamplingRecord, Row]:
        sampling_id = await self._grounds.rows.sampling_of_row(row_id)
        record = None if sampling_id is None else await self._grounds.repository.find(sampling_id)
        if record is None:
            raise NotFound(f"there is no row {row_id}; GET /v1/samplings/ID/rows lists a sampling's")
        return record, await self._grounds.rows.row(record, row_id)

    async def _verdict(
        self, sandbox_id: str, profile: Profile, row: Row, task: PrivilegedTask
    ) -> tuple[Verdict, Explanation | None]:
        gold = task.privileged.reference
        item = VerifyItem(reply=row.reply, finish_reason=row.finish_reason, gold=gold, order_matters=task.order_matters)
        answer = await self._grounds.verifier.verify(sandbox_id, VerifyRequest(profile=profile, items=[item]))
        (verdict,) = answer.verdicts
        if verdict.sql is None or verdict.status in NOT_EXPLAINED:
            return verdict, None
        asked = ExplainRequest(profile=profile, gold=gold, sql=verdict.sql, order_matters=task.order_matters)
        return verdict, await self._grounds.verifier.explain(sandbox_id, asked)
