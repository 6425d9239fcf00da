"""From the golds' constants and links to the material of candidate seeds. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from services.verifier.suites.generation import Material, boundary_values
from services.verifier.suites.links import shared_values, with_inferred
from services.verifier.suites.perturbation import from_pattern, neighbours
from services.verifier.suites.study import Constant, GoldStudy, Place
from services.verifier.suites.tables import Column, Contents, Kind, Table, parents_first


def seed_material(
    tables: Sequence[Table],
    rows: Contents,
    studies: Iterable[GoldStudy],
    values: Mapping[str, str],
    clock: Iterable[Place],
) -> Material:
    """`values`: constant expressions to what Postgres makes of them, as text; `clock`: columns that follow it."""
    studies = list(studies)
    follows = set(clock)
    links = [link for study in studies for link in study.links if _known(tables, link[0]) and _known(tables, link[1])]
    filled = [
        replace(
            table,
            columns=tuple(replace(column, from_clock=(table.name, column.name) in follows) for column in table.columns),
            rows=tuple(rows[table.name]),
        )
        for table in tables
    ]
    inferred = parents_first(with_inferred(filled, links))
    around: dict[Place, list[str]] = {}
    for study in studies:
        for constant in study.constants:
            place = constant.table, constant.column
            if constant.expression in values and _known(tables, place):
                column = _column(tables, place)
                around.setdefault(place, []).extend(_around(constant, values[constant.expression], column))
    boundaries = {place: boundary_values(_column(tables, place), found) for place, found in around.items()}
    return Material(inferred, boundaries, shared_values(inferred, links))


def _known(tables: Sequence[Table], place: Place) -> bool:
    """Whether seeds fill the column: generated ones and those left to their default are not."""
    return any(table.name == place[0] and any(c.name == place[1] for c in table.columns) for table in tables)


def _column(tables: Sequence[Table], place: Place) -> Column:
    table = next(table for table in tables if table.name == place[0])
    return table.columns[table.index(place[1])]


def _around(constant: Constant, value: str, column: Column) -> list[str]:
    if constant.pattern:
        return from_pattern(value)
    if constant.year and column.kind in (Kind.DATE, Kind.TIMESTAMP) and value.isdecimal() and len(value) == 4:
        edges = (f"{value}-01-01", f"{value}-12-31")
        return [other for edge in edges for other in neighbours(edge, column)]
    return neighbours(value, column)
