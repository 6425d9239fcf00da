"""What a yield recommends, and how a report turns into shares."""

import pytest

from services.author.advice import LEAST_SHARE, advised, shares, thin_cells
from shared.contracts.author import AuthoringYield
from shared.contracts.measuring import Estimate, Report, ReportLine
from shared.contracts.tasks import Archetype, Difficulty


def _line(name: str, rate: float) -> ReportLine:
    estimate = Estimate(value=rate, low=rate, high=rate)
    return ReportLine.model_construct(slice=name, pass_at_1=estimate)


def _report(**rates: float) -> Report:
    lines = [_line("all", 0.5), _line("difficulty=easy", 0.9), *(_line(f"archetype={k}", v) for k, v in rates.items())]
    return Report.model_construct(lines=lines)


def test_without_an_aim_all_archetypes_are_alike_and_only_narrows_them() -> None:
    assert shares([], None) == {}
    assert shares([Archetype.WINDOW, Archetype.JOIN, Archetype.WINDOW], None) == {
        Archetype.WINDOW: 1.0,
        Archetype.JOIN: 1.0,
    }


def test_a_report_gives_the_weakest_most_and_none_nothing() -> None:
    found = shares([], _report(window=0.2, join=0.6, filter=1.0))
    assert found[Archetype.SET_LOGIC] == 1.0, "the report knows nothing of it"
    assert found[Archetype.WINDOW] == pytest.approx(0.8)
    assert found[Archetype.JOIN] == pytest.approx(0.4)
    assert found[Archetype.FILTER] == LEAST_SHARE
    narrowed = shares([Archetype.WINDOW, Archetype.JOIN], _report(window=0.2, join=0.6))
    assert narrowed == {Archetype.WINDOW: 1.0, Archetype.JOIN: pytest.approx(0.5)}


def test_thin_cells_are_the_empty_ones_first() -> None:
    matrix = {archetype: dict.fromkeys(Difficulty, 30) for archetype in Archetype}
    matrix[Archetype.WINDOW] = {Difficulty.HARD: 3, Difficulty.MEDIUM: 30}
    found = thin_cells(matrix)
    assert [(cell.archetype, cell.difficulty, cell.tasks) for cell in found] == [
        (Archetype.WINDOW, Difficulty.EASY, 0),
        (Archetype.WINDOW, Difficulty.HARD, 3),
    ]
    assert len(thin_cells({})) == 30


def test_the_smallest_effect_shrinks_with_the_holdouts_golds() -> None:
    def effect(golds: int) -> float:
        found = AuthoringYield(
            proposed=0, kept=0, golds=0, holdout_tasks=900, holdout_golds=golds, rejected={}, matrix={}
        )
        return advised(found).detectable_effect

    assert effect(1) == 1.0
    assert effect(400) == pytest.approx(2.8016 * (0.5 / 4) ** 0.5 / 20, abs=1e-4)
