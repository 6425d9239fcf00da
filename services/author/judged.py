"""What the gates that see one proposal at a time say of it."""

from dataclasses import dataclass

from services.author.gates import Reason
from services.author.teachers.base import Proposal


@dataclass(frozen=True)
class Result:
    """What one gold returned on all seeds, as far as it tells golds apart."""

    signature: str
    """Digest over the seeds: equal for golds that return the same rows on each."""
    cells: int
    """Rows times columns, over all seeds: how much an equal signature proves."""
    tables: str
    """Digest of the tables it reads."""
    values: str
    """Digest of the values it compares with."""


@dataclass(frozen=True)
class Judged:
    """A proposal with its verdict."""

    position: int
    proposal: Proposal
    """As it passed: its golds may have lost an ORDER BY."""
    reason: Reason | None
    """Why the whole proposal is no task."""
    phrasing_reasons: tuple[Reason | None, ...] = ()
    """Why one of its questions is none; empty: all pass."""
    results: tuple[Result, ...] = ()
    """One an acceptable gold; empty where they did not run."""
    edits: tuple[str, ...] = ()
    """What the gates changed, e.g. `order_by_removed`."""

    @property
    def reasons(self) -> tuple[Reason | None, ...]:
        """One a phrasing: its own, or that of the whole proposal."""
        own = self.phrasing_reasons or (None,) * len(self.proposal.phrasings)
        return tuple(self.reason or reason for reason in own)
