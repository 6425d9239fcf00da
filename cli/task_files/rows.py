"""What all formats share."""

from typing import Any

from shared.contracts.tasks import Archetype, Difficulty

RawRow = dict[str, Any]


def known_archetype(text: object) -> Archetype | None:
    """None for a name that is not ours: the gold's own is read then."""
    return Archetype(text) if isinstance(text, str) and text in list(Archetype) else None


def known_difficulty(text: object) -> Difficulty | None:
    """None for a label that is not ours."""
    return Difficulty(text) if isinstance(text, str) and text in list(Difficulty) else None
