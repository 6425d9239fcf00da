"""Draws drafts archetype by archetype and words them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from random import Random

from services.author.teachers.base import Assignment, Phrasing, Proposal
from services.author.teachers.grammar import (
    anti_join,
    date_buckets,
    derived_metric,
    filter,
    grouping,
    join,
    self_join,
    set_logic,
    top_n,
    window,
)
from services.author.teachers.grammar.labels import Labels
from services.author.teachers.grammar.material import Draft, Material, Roles
from services.author.teachers.grammar.styles import STYLES
from shared.contracts.tasks import Archetype

Form = Callable[[Material], Draft | None]

_KINDS = {
    Archetype.FILTER: filter,
    Archetype.JOIN: join,
    Archetype.GROUPING: grouping,
    Archetype.TOP_N: top_n,
    Archetype.DATE_BUCKETS: date_buckets,
    Archetype.ANTI_JOIN: anti_join,
    Archetype.SELF_JOIN: self_join,
    Archetype.DERIVED_METRIC: derived_metric,
    Archetype.SET_LOGIC: set_logic,
    Archetype.WINDOW: window,
}
FORMS: dict[Archetype, Sequence[Form]] = {archetype: module.FORMS for archetype, module in _KINDS.items()}
NEEDS: dict[Archetype, str] = {archetype: module.NEEDS for archetype, module in _KINDS.items()}
"""What a schema and its rows must have for questions of a kind: said where none could be made."""

BARREN_DRAWS = 400
"""Draws in a row without a new gold after which an archetype has no more to give."""


class GrammarTeacher:
    """Deterministic: equal assignments give equal proposals in equal order."""

    name = "grammar"

    async def propose(self, assignment: Assignment) -> AsyncIterator[Proposal]:
        """One proposal of each archetype in turn until `assignment.golds` are out or all are exhausted.

        An archetype of a smaller share sits out turns.
        """
        catalogue = assignment.catalogue
        roles, labels = Roles(catalogue), Labels(catalogue)
        styles = Random(assignment.seed)
        sources = {
            archetype: _drafts(forms, Material(catalogue, roles, labels, Random(f"{assignment.seed}:{archetype}")))
            for archetype, forms in FORMS.items()
            if not assignment.weights or archetype in assignment.weights
        }
        due = dict.fromkeys(sources, 0.0)
        proposed: set[str] = set()
        while sources:
            await asyncio.sleep(0)  # drawing is CPU work: let the server answer in between
            for archetype in list(sources):
                due[archetype] += assignment.weights.get(archetype, 1.0)
                if due[archetype] < 1.0:
                    continue
                due[archetype] -= 1.0
                draft = next(sources[archetype], None)
                if draft is None:
                    del sources[archetype]
                elif draft.sql not in proposed:
                    proposed.add(draft.sql)
                    yield _proposal(draft, archetype, assignment, styles)
                    if len(proposed) >= assignment.golds:
                        return


def _drafts(forms: Sequence[Form], material: Material) -> Iterator[Draft]:
    """Distinct drafts until the dice bring nothing new."""
    seen: set[str] = set()
    barren = 0
    while barren < BARREN_DRAWS:
        draft = material.random.choice(forms)(material)
        if draft is None or draft.sql in seen:
            barren += 1
            continue
        barren = 0
        seen.add(draft.sql)
        yield draft


def _proposal(draft: Draft, archetype: Archetype, assignment: Assignment, random: Random) -> Proposal:
    styles = [style for style in STYLES if not assignment.styles or style.name in assignment.styles]
    styles = random.sample(styles, min(assignment.phrasings, len(styles)))
    asked = tuple(Phrasing(style.name, _capitalised(style.ask.format(draft.say(style)))) for style in styles)
    return Proposal(draft.sql, archetype, draft.ordered, asked)


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]
