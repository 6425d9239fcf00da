"""What a yield says beyond its counts: what the holdout can show, what is thin, which archetypes to aim at. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from shared.contracts.author import AuthoringYield, ThinCell
from shared.contracts.measuring import Report
from shared.contracts.tasks import Archetype, Difficulty
from shared.statistics import detectable_effect, noise_deviation

EVALUATION_K = 4
HALF = 0.5
"""The pass rate at which a task's outcome is noisiest: the effect detected is the largest of all."""

THIN_SHARE = 1 / 3
"""A cell with less than this share of the mean cell's tasks is thin."""

LEAST_SHARE = 0.1
"""What an archetype that never fails still gets of the share of the weakest."""


def advised(found: AuthoringYield) -> AuthoringYield:
    """The yield with the smallest effect its holdout can detect, and its thin cells.

    Questions of one gold succeed and fail together, so golds are counted, not tasks.
    """
    effect = detectable_effect(noise_deviation([HALF], EVALUATION_K), found.holdout_golds)
    return found.model_copy(update={"detectable_effect": min(1.0, effect), "thin": thin_cells(found.matrix)})


def thin_cells(matrix: Mapping[str, Mapping[str, int]]) -> list[ThinCell]:
    """Cells of archetype x difficulty with few tasks or none, emptiest first."""
    cells = [
        ThinCell(archetype=archetype, difficulty=difficulty, tasks=matrix.get(archetype, {}).get(difficulty, 0))
        for archetype in Archetype
        for difficulty in Difficulty
    ]
    limit = THIN_SHARE * sum(cell.tasks for cell in cells) / len(cells)
    return sorted((cell for cell in cells if cell.tasks < max(1.0, limit)), key=lambda cell: cell.tasks)


def shares(only: Sequence[Archetype], report: Report | None) -> dict[Archetype, float]:
    """Archetype to its share relative to the weakest, for `only` and by what a policy fails; empty: all alike.

    An archetype that the report does not know counts as failed throughout: nothing is known of it.
    """
    wanted = list(dict.fromkeys(only)) or list(Archetype)
    if report is None:
        return dict.fromkeys(wanted, 1.0) if only else {}
    failed = {archetype: 1.0 - rate for archetype, rate in _pass_rates(report)}
    needs = {archetype: failed.get(archetype, 1.0) for archetype in wanted}
    most = max(needs.values()) or 1.0
    return {archetype: max(LEAST_SHARE, need / most) for archetype, need in needs.items()}


def _pass_rates(report: Report) -> Iterable[tuple[Archetype, float]]:
    for line in report.lines:
        kind, _, name = line.slice.partition("=")
        if kind == "archetype" and name in list(Archetype):
            yield Archetype(name), line.pass_at_1.value
