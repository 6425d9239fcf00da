"""The second opinion: a model teacher answers each question that passed, from the question alone, and the verifier
compares the answer with the gold."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.author.gates import Reason, opinion_gate
from services.author.grounds import Grounds, GroundsBroken
from services.author.judged import Judged
from services.author.teachers.base import Attempting
from shared.contracts.verifier import Status, VerifyItem

_Key = tuple[int, int]
"""Entry and phrasing."""


@dataclass(frozen=True)
class _Asked:
    """One question that passed so far: where it stands, and what it is compared with."""

    entry: int
    phrasing: int
    question: str
    golds: list[str]
    order_matters: bool


async def second_opinions(
    grounds: Grounds, teacher: Attempting, attempts: int, judged: Sequence[Judged]
) -> list[Judged]:
    """The verdicts, with SECOND_OPINION on every question that no attempt answers as its gold does.

    Raises TeacherError, GroundsBroken, ServiceProblem, ServiceUnreachable; attempts that were paid for are not paid
    for again.
    """
    asked = [question for number, entry in enumerate(judged) for question in _standing(number, entry)]
    calls = [(question, number) for question in asked for number in range(attempts)]
    landed = await asyncio.gather(
        *(teacher.attempt(question.question, number) for question, number in calls), return_exceptions=True
    )
    if (failure := next((one for one in landed if isinstance(one, BaseException)), None)) is not None:
        raise failure  # after all have landed: what was paid for is stored
    replies = [one for one in landed if not isinstance(one, BaseException)]
    answered = [(question, reply) for (question, _), reply in zip(calls, replies, strict=True) if reply is not None]
    verdicts = await grounds.verify(
        [VerifyItem(reply=reply, gold=asked.golds, order_matters=asked.order_matters) for asked, reply in answered]
    )
    if any(verdict.status is Status.UNSCORABLE for verdict in verdicts):
        raise GroundsBroken("the verifier could not compare an attempt with its gold")
    statuses: dict[_Key, list[Status]] = {(one.entry, one.phrasing): [Status.NO_SQL] for one in asked}
    for (question, _), verdict in zip(answered, verdicts, strict=True):
        statuses[question.entry, question.phrasing].append(verdict.status)
    return [
        _with_reasons(entry, {place[1]: opinion_gate(found) for place, found in statuses.items() if place[0] == number})
        for number, entry in enumerate(judged)
    ]


def _standing(number: int, entry: Judged) -> list[_Asked]:
    if entry.reason is not None:
        return []
    proposal, reasons = entry.proposal, entry.reasons
    golds = [proposal.gold, *proposal.alternatives]
    return [
        _Asked(number, place, phrasing.question, golds, proposal.order_matters)
        for place, phrasing in enumerate(proposal.phrasings)
        if reasons[place] is None
    ]


def _with_reasons(entry: Judged, found: dict[int, Reason | None]) -> Judged:
    reasons = tuple(found.get(place, reason) for place, reason in enumerate(entry.reasons))
    return replace(entry, phrasing_reasons=reasons)
