"""What a teacher is: something that proposes questions with the query that answers them."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from services.author.catalogue import Catalogue
from shared.contracts.tasks import Archetype, Difficulty, Split


@dataclass(frozen=True)
class Phrasing:
    """One way to ask."""

    style: str
    question: str


@dataclass(frozen=True)
class Proposal:
    """A gold query and questions that all mean it. Nothing about it is trusted before the gates have seen it."""

    gold: str
    archetype: Archetype
    order_matters: bool
    """Whether the questions ask for an order."""
    phrasings: tuple[Phrasing, ...]
    columns: tuple[str, ...] = ()
    """What the questions ask for, in words, one entry a column in order; empty where the teacher does not say."""
    difficulty: Difficulty | None = None
    """The teacher's own label; the measured one decides."""
    position: int | None = None
    """Its place among the authoring's proposals, whenever it lands. None: proposals are counted as they come."""
    alternatives: tuple[str, ...] = ()
    """Further acceptable golds of an imported task."""
    split: Split | None = None
    """What an imported task keeps; None: its gold decides."""


@dataclass(frozen=True)
class Unreadable:
    """An item of a model's reply that is no proposal: kept as data, never judged."""

    archetype: Archetype
    position: int


@dataclass(frozen=True)
class Assignment:
    """What a teacher is asked for. Equal assignments to a deterministic teacher give equal proposals."""

    catalogue: Catalogue
    seed: int
    golds: int
    """Golds to propose, spread over the archetypes."""
    phrasings: int
    """Questions per gold; a teacher with fewer styles gives what it has."""
    styles: tuple[str, ...] = ()
    """Names of the styles to ask in; empty: all of the teacher's."""
    weights: Mapping[Archetype, float] = field(default_factory=dict)
    """Archetype to its share relative to the others, in (0, 1]; empty: all alike. One that is absent gets none."""


class Teacher(Protocol):
    """A source of proposals."""

    @property
    def name(self) -> str:
        """What an authoring calls it."""
        ...

    def propose(self, assignment: Assignment) -> AsyncIterator[Proposal | Unreadable]:
        """Proposals, archetypes interleaved; fewer than asked for where the schema allows no more.

        Asked again after a kill it yields what had landed before (from its ledger, or by drawing the same again), at
        equal positions. Raises TeacherError.
        """
        ...


@runtime_checkable
class Attempting(Protocol):
    """A teacher that can also answer: the second opinion on a proposal."""

    async def attempt(self, question: str, number: int = 0) -> str | None:
        """A reply to the question alone, made without sight of the gold; None where the model refuses.

        The raw first turn: send it as `VerifyItem.reply`, the verifier extracts. `number` tells repeated attempts at
        one question apart. Paid once: asked again, the stored reply is answered. Raises TeacherError.
        """
        ...


class TeacherError(Exception):
    """The teacher cannot go on. The message says what happened and what to do; what landed is kept."""


class OverBudget(TeacherError):
    """The next call might cost more than is left of `max_cost_usd`."""
