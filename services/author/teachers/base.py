"""What a teacher is: something that proposes questions with the query that answers them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from services.author.catalogue import Catalogue
from shared.contracts.tasks import Archetype


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


@dataclass(frozen=True)
class Assignment:
    """What a teacher is asked for. Equal assignments to a deterministic teacher give equal proposals."""

    catalogue: Catalogue
    seed: int
    golds: int
    """Distinct golds to propose, spread over the archetypes."""
    phrasings: int
    """Questions per gold; a teacher with fewer styles gives what it has."""


class Teacher(Protocol):
    """A source of proposals."""

    @property
    def name(self) -> str:
        """What an authoring calls it."""
        ...

    def propose(self, assignment: Assignment) -> AsyncIterator[Proposal]:
        """Proposals, archetypes interleaved; fewer than asked for where the schema allows no more."""
        ...
