"""Judged proposals as JSON documents for the control database, and back. Pure."""

from dataclasses import asdict
from typing import Any

from services.author.gates import Reason
from services.author.judged import Judged, Result
from services.author.teachers.base import Phrasing, Proposal
from shared.contracts.tasks import Archetype, Difficulty, Split

Document = dict[str, Any]


def evidence_document(judged: Judged) -> Document:
    """What the gates saw, beside the proposal and its reason."""
    return {
        "phrasing_reasons": list(judged.phrasing_reasons),
        "results": results_document(judged.results),
        "edits": list(judged.edits),
    }


def results_document(results: tuple[Result, ...]) -> list[Document]:
    """Of a task's golds."""
    return [asdict(result) for result in results]


def results_from(document: list[Document]) -> tuple[Result, ...]:
    """Inverse of `results_document`."""
    return tuple(Result(**result) for result in document)


def judged_from(position: int, proposal: Proposal, reason: str | None, evidence: Document) -> Judged:
    """Inverse of `evidence_document`; an empty document is of a proposal judged before there was evidence."""
    return Judged(
        position,
        proposal,
        None if reason is None else Reason(reason),
        tuple(None if one is None else Reason(one) for one in evidence.get("phrasing_reasons", [])),
        results_from(evidence.get("results", [])),
        tuple(evidence.get("edits", [])),
    )


def proposal_document(proposal: Proposal) -> Document:
    """A whole proposal."""
    return {
        **asdict(proposal),
        "phrasings": [[asked.style, asked.question] for asked in proposal.phrasings],
    }


def proposal_from(document: Document) -> Proposal:
    """Inverse of `proposal_document`; also reads a row of `author.proposals`."""
    difficulty, split = document["difficulty"], document["split"]
    return Proposal(
        gold=document["gold"],
        archetype=Archetype(document["archetype"]),
        order_matters=document["order_matters"],
        phrasings=tuple(Phrasing(style, question) for style, question in document["phrasings"]),
        columns=tuple(document["columns"]),
        difficulty=None if difficulty is None else Difficulty(difficulty),
        position=document["position"],
        alternatives=tuple(document["alternatives"]),
        split=None if split is None else Split(split),
    )
