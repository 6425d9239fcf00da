"""How much SQL a right answer needs, counted in the gold's parse tree. Pure."""

from services.author.statement import read
from shared.contracts.tasks import Difficulty

AGGREGATES = ("count", "sum", "avg", "min", "max", "array_agg", "string_agg", "bool_and", "bool_or", "stddev")

EASY_POINTS = 1
"""One construct, or a second condition."""
MEDIUM_POINTS = 3


def points_of(sql: str) -> int:
    """A weighted count of constructs. Raises SqlSyntaxError."""
    statement = read(sql)
    selects, calls = statement.of_type("SelectStmt"), statement.of_type("FuncCall")
    sorts = sum(1 for select in selects if select.sort_clause)
    groups = sum(1 for select in selects if select.group_clause)
    havings = sum(1 for select in selects if select.HasField("having_clause"))
    set_operations = sum(1 for select in selects if select.HasField("larg"))
    windows = sum(1 for call in calls if call.HasField("over"))
    modified = sum(1 for call in calls if call.agg_distinct or call.HasField("agg_filter"))
    subqueries = sum(len(statement.of_type(name)) for name in ("SubLink", "RangeSubselect", "CommonTableExpr"))
    joins, cases = len(statement.of_type("JoinExpr")), len(statement.of_type("CaseExpr"))
    conditions = sum(max(len(expression.args) - 1, 0) for expression in statement.of_type("BoolExpr"))
    aggregated = bool(statement.calls(*AGGREGATES))
    light = joins + sorts + groups + havings + modified + cases + conditions + aggregated
    return light + 2 * (subqueries + windows + set_operations)


def difficulty_of(sql: str) -> Difficulty:
    """Easy, medium or hard. Raises SqlSyntaxError."""
    points = points_of(sql)
    if points <= EASY_POINTS:
        return Difficulty.EASY
    return Difficulty.MEDIUM if points <= MEDIUM_POINTS else Difficulty.HARD
