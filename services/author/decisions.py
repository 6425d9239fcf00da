"""What people decided, laid over what the gates said. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from services.author.gates import ACCEPTABLE, Reason
from services.author.judged import Judged
from services.author.teachers.base import Phrasing
from shared.contracts.review import Action
from shared.ids import task_id

ACCEPTED = "accepted"
"""In a task's provenance: a person overruled a gate."""
EDITED = "edited"
"""In a task's provenance: a person changed its question or gold."""


@dataclass(frozen=True)
class Decided:
    """The newest decision on one question."""

    action: Action
    edited: Judged | None = None
    """What replaces it, with its verdict."""


def decided(judged: Sequence[Judged], decisions: Mapping[str, Decided]) -> list[Judged]:
    """The proposals as people left them. `decisions`: by the id of the question as it was proposed.

    A question that was decided on becomes a proposal of its own beside the others of its gold. One that is proposed
    twice is replaced once.
    """
    if not decisions:
        return list(judged)
    replaced: set[str] = set()
    found: list[Judged] = []
    for entry in judged:
        kept: list[tuple[Phrasing, Reason | None]] = []
        for phrasing, reason in zip(entry.proposal.phrasings, entry.reasons, strict=True):
            name = task_id(phrasing.question)
            decision = decisions.get(name)
            if decision is None:
                kept.append((phrasing, reason))
                continue
            found.append(_apart(entry, phrasing, reason, decision.action))
            if decision.edited is not None and name not in replaced:
                replaced.add(name)
                edits = (*decision.edited.edits, EDITED)
                found.append(replace(decision.edited, position=entry.position, edits=edits))
        if kept:
            proposal = replace(entry.proposal, phrasings=tuple(phrasing for phrasing, _ in kept))
            found.append(replace(entry, proposal=proposal, phrasing_reasons=tuple(reason for _, reason in kept)))
    return found


def _apart(entry: Judged, phrasing: Phrasing, reason: Reason | None, action: Action) -> Judged:
    """The one question, as its decision leaves it."""
    proposal = replace(entry.proposal, phrasings=(phrasing,))
    edits = entry.edits
    if action is not Action.ACCEPT:
        reason = Reason.REVIEWED
    elif reason in ACCEPTABLE:
        reason, edits = None, (*edits, ACCEPTED)
    return replace(entry, proposal=proposal, reason=reason, phrasing_reasons=(), edits=edits)
