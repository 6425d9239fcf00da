"""Runs golds through the verifier and puts them before the gates."""

from collections.abc import Sequence

from services.author.assembly import Judged
from services.author.gates import Reason, execution_gate, infrastructure_failure, statement_gate
from services.author.statement import Statement, read, tie_probe
from services.author.teachers.base import Proposal
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import ExecuteRequest
from shared.sql import SqlSyntaxError

RUNS_PER_STATEMENT = 2


class VerifierBroken(Exception):
    """The sandbox failed under a statement: the batch is not judged, and may be judged again."""


async def judge(
    verifier: VerifierClient, sandbox_id: str, first_position: int, proposals: Sequence[Proposal]
) -> list[Judged]:
    """One verdict a proposal, in order.

    Raises VerifierBroken, ServiceProblem, ServiceUnreachable: nothing is judged then.
    """
    read_golds = [_read(proposal.gold) for proposal in proposals]
    reasons = [Reason.NOT_SQL if gold is None else statement_gate(gold) for gold in read_golds]
    runnable = [number for number, reason in enumerate(reasons) if reason is None]
    probes = {}
    for number in runnable:
        gold = read_golds[number]
        probe = tie_probe(gold) if gold is not None else None
        if probe is not None:
            probes[number] = probe
    statements = [proposals[number].gold for number in runnable] + list(probes.values())
    if statements:
        request = ExecuteRequest(statements=statements, repeat=RUNS_PER_STATEMENT)
        results = (await verifier.execute(sandbox_id, request)).results
        broken = next((failure for result in results if (failure := infrastructure_failure(result))), None)
        if broken is not None:
            raise VerifierBroken(f"the verifier could not run a gold: {broken}")
        probed = dict(zip(probes, results[len(runnable) :], strict=True))
        for number, executed in zip(runnable, results[: len(runnable)], strict=True):
            reasons[number] = execution_gate(executed, probed.get(number))
    return [
        Judged(first_position + number, proposal, reason)
        for number, (proposal, reason) in enumerate(zip(proposals, reasons, strict=True))
    ]


def _read(sql: str) -> Statement | None:
    """None where it does not parse."""
    try:
        return read(sql)
    except SqlSyntaxError:
        return None
