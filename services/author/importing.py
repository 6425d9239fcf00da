"""Tasks from elsewhere as proposals: an import is an authoring whose teacher is a file. Pure."""

import json
from collections.abc import AsyncIterator, Sequence

from services.author.statement import Statement, read
from services.author.teachers.base import Assignment, Phrasing, Proposal
from shared.contracts.author import AuthoringRequest
from shared.contracts.tasks import Archetype, ImportedTask, ImportRequest
from shared.ids import sha256_hex
from shared.sql import SqlSyntaxError

IMPORT = "import"
"""What an import's teacher is called."""

_RATIOS = frozenset({"/", "*"})
_BUCKETS = ("date_trunc", "extract", "date_part", "to_char")


class ImportTeacher:
    """Proposes the tasks of a request, each at the position of its row."""

    name = IMPORT

    def __init__(self, tasks: Sequence[ImportedTask]) -> None:
        self._tasks = tasks

    async def propose(self, assignment: Assignment) -> AsyncIterator[Proposal]:
        """All of them; the assignment is not looked at."""
        for position, task in enumerate(self._tasks):
            yield proposal_of(task, position)


def authoring_of(request: ImportRequest) -> AuthoringRequest:
    """The authoring that an import runs as. Its seed tells two files under one id apart."""
    content = json.dumps([task.model_dump(mode="json") for task in request.tasks])
    return AuthoringRequest(
        authoring_id=request.authoring_id,
        domain=request.domain,
        teacher=IMPORT,
        golds=len(request.tasks),
        phrasings=1,
        seed=int(sha256_hex(content)[:8], 16),
        add=request.add,
        second_opinions=0,
    )


def proposal_of(task: ImportedTask, position: int) -> Proposal:
    """One row."""
    gold, *others = task.golds
    return Proposal(
        gold=gold,
        archetype=task.archetype or archetype_of(gold),
        order_matters=task.order_matters,
        phrasings=(Phrasing(task.style or IMPORT, task.question),),
        columns=tuple(task.columns),
        difficulty=task.difficulty,
        position=position,
        alternatives=tuple(others),
        split=task.split,
    )


def archetype_of(sql: str) -> Archetype:
    """The kind of question that a gold answers, by the rarest construct in it; FILTER where it does not parse."""
    try:
        statement = read(sql)
    except SqlSyntaxError:
        return Archetype.FILTER
    selects, calls = statement.of_type("SelectStmt"), statement.of_type("FuncCall")
    grouped = any(select.group_clause for select in selects)
    tables = [table.relname for table in statement.of_type("RangeVar")]
    kinds = {
        Archetype.WINDOW: any(call.HasField("over") for call in calls),
        Archetype.ANTI_JOIN: _excludes(statement),
        Archetype.SET_LOGIC: any(select.HasField("larg") or select.distinct_clause for select in selects),
        Archetype.SELF_JOIN: len(set(tables)) < len(tables) and bool(statement.of_type("JoinExpr")),
        Archetype.TOP_N: any(select.HasField("limit_count") for select in selects),
        Archetype.DATE_BUCKETS: grouped and bool(statement.calls(*_BUCKETS)),
        Archetype.DERIVED_METRIC: any(
            expression.name and expression.name[0].string.sval in _RATIOS for expression in statement.of_type("A_Expr")
        ),
        Archetype.GROUPING: grouped,
        Archetype.JOIN: len(tables) > 1,
    }
    return next((kind for kind, holds in kinds.items() if holds), Archetype.FILTER)


def _excludes(statement: Statement) -> bool:
    """NOT EXISTS, NOT IN a query, or a left join that keeps what has no partner."""
    negated = (node for node in statement.of_type("BoolExpr") if node.args and len(node.args) == 1)
    left = any(join.jointype == 2 for join in statement.of_type("JoinExpr"))
    return any(node.args[0].HasField("sub_link") for node in negated) or (
        left and any(test.nulltesttype == 1 for test in statement.of_type("NullTest"))
    )
