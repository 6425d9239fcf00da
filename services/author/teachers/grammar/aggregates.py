"""Figures over rows: count, sum, average, extremes; in SQL and in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.author.catalogue import Column
from services.author.teachers.grammar.material import Material, satisfying
from services.author.teachers.grammar.predicates import Predicate
from services.author.teachers.grammar.scope import Scope
from services.author.teachers.grammar.styles import Style


@dataclass(frozen=True)
class Aggregate:
    """One figure."""

    sql: str
    column: Column | None
    """None: counts rows."""
    say: Callable[[Style], str]
    """Without what it is taken over: `average price`, `number`."""


def count(scope: Scope, material: Material) -> Aggregate:
    """How many rows."""
    entities = material.labels.table(scope.base.name)
    return Aggregate("count(*)", None, lambda style: f"number of {entities}")


def of_measure(scope: Scope, material: Material, used: Sequence[Column], nullable: bool = True) -> Aggregate | None:
    """Sum, average, minimum or maximum of one of the base's own numbers that is not `used` otherwise.

    Never of a joined table's: its rows would count repeatedly.
    """
    column = material.measure([column for column in scope.base.columns if column not in used], nullable)
    if column is None:
        return None
    label = material.label(scope, column)
    functions = ["avg", "min", "max"]
    if material.roles.is_additive(column):
        functions += ["sum", "sum"]
    function = material.random.choice(functions)
    field = {"avg": "average", "min": "lowest", "max": "highest", "sum": "total"}[function]

    def say(style: Style) -> str:
        form: str = getattr(style, field)
        return (
            form.format(l=label).replace("total total ", "sum of total ").replace("average average ", "mean average ")
        )

    return Aggregate(f"{function}({scope.reference(column)})", column, say)


def any_figure(scope: Scope, material: Material, used: Sequence[Column], nullable: bool = True) -> Aggregate:
    """A count in four of ten cases, else a figure over a number where the table has one."""
    measured = None if material.chance(0.4) else of_measure(scope, material, used, nullable)
    return measured or count(scope, material)


def over_rows(figure: Aggregate, entities: str, phrases: str, style: Style) -> str:
    """`average price of products with stock over 20`; a count already names what it counts."""
    said = figure.say(style)
    return f"{said}{phrases}" if figure.column is None else f"{said} of {entities}{phrases}"


def by_group(said: str, conditions: Sequence[Predicate], per: str) -> str:
    """What is asked for of each group, set off from conditions, which `per` would seem to belong to."""
    return f"{said}, {per}" if conditions else f"{said} {per}"


def group_sizes(scope: Scope, conditions: list[Predicate], group: Column) -> list[int]:
    """Rows in each group on the main seed, ascending."""
    sizes: dict[object, int] = {}
    for row in satisfying(scope, conditions):
        sizes[row[group]] = sizes.get(row[group], 0) + 1
    return sorted(sizes.values())
