"""Puts proposals before the gates that see one at a time, and runs their golds for it."""

import asyncio
from collections.abc import Mapping, Sequence

from services.author.gates import (
    Reason,
    count_gate,
    execution_gate,
    order_gate,
    reversal_gate,
)
from services.author.grounds import Grounds
from services.author.judged import Judged, Result
from services.author.reading import ReadGold, Reading, read_proposal
from services.author.teachers.base import Proposal
from shared.contracts.verifier import ExecutedStatement
from shared.ids import sha256_hex

RUNS_PER_STATEMENT = 2

Ran = Mapping[str, ExecutedStatement]
"""Statement to its runs."""


async def judge(grounds: Grounds, proposals: Sequence[Proposal]) -> list[Judged]:
    """One verdict a proposal, in order; their positions count from 0.

    Raises GroundsBroken, ServiceProblem, ServiceUnreachable: nothing is judged then.
    """
    readings = await asyncio.to_thread(lambda: [read_proposal(proposal, grounds.knowledge) for proposal in proposals])
    runnable = [reading for reading in readings if reading.reason is None]
    golds = {gold.sql for reading in runnable for gold in reading.golds}
    probes = {gold.probe for reading in runnable for gold in reading.golds if gold.probe is not None}
    texts = sorted(golds | probes)
    ran = dict(zip(texts, await grounds.execute(texts, RUNS_PER_STATEMENT), strict=True))
    reasons = [_reason(reading, ran) for reading in readings]
    texts = sorted(
        gold.sql
        for reading, reason in zip(readings, reasons, strict=True)
        for gold in reading.golds
        if reason is None and gold.sql in ran and gold.depends_on_order
    )
    turned = dict(zip(texts, await grounds.execute_reversed(texts), strict=True))
    return [
        Judged(
            position,
            reading.proposal,
            reason or _turned_reason(reading, ran, turned),
            reading.phrasing_reasons,
            tuple(_result(gold, ran[gold.sql]) for gold in reading.golds if gold.sql in ran),
            reading.edits,
        )
        for position, (reading, reason) in enumerate(zip(readings, reasons, strict=True))
    ]


def _reason(reading: Reading, ran: Ran) -> Reason | None:
    if reading.reason is not None:
        return reading.reason
    for gold in reading.golds:
        executed = ran[gold.sql]
        reason = execution_gate(executed, None if gold.probe is None else ran[gold.probe])
        if reason is not None:
            return reason
    main = ran[reading.golds[0].sql].executions[0]
    return order_gate(reading.proposal.order_matters, reading.golds[0].ordered, main.rows or 0) or count_gate(
        len(reading.proposal.columns), len(main.columns)
    )


def _turned_reason(reading: Reading, ran: Ran, turned: Ran) -> Reason | None:
    moved = (reversal_gate(ran[gold.sql], turned[gold.sql]) for gold in reading.golds if gold.sql in turned)
    return next((reason for reason in moved if reason is not None), None)


def _result(gold: ReadGold, executed: ExecutedStatement) -> Result:
    runs = executed.executions
    return Result(
        signature=sha256_hex("".join(run.signature for run in runs)),
        cells=sum((run.rows or 0) * len(run.columns) for run in runs),
        tables=gold.tables_digest,
        values=gold.values_digest,
    )
