"""Gates that see one proposal at a time: pure functions to a reason, or None when it passes."""

from collections.abc import Sequence
from enum import StrEnum

from services.author.statement import Statement
from shared.contracts.verifier import ExecutedStatement, Execution

MAXIMUM_ROWS = 50
"""A person can read a result of this size, and a chance match of one is unlikely."""
QUESTION_CHARACTERS = (20, 700)

CLOCK_OR_RANDOM = (
    *("now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday"),
    *("random", "random_normal", "setseed", "gen_random_uuid", "uuidv4", "uuidv7"),
    *("pg_sleep", "nextval", "txid_current", "pg_current_xact_id", "pg_backend_pid"),
)


class Reason(StrEnum):
    """Why a proposal is no task."""

    NOT_SQL = "not_sql"  # Postgres' grammar does not accept it
    NOT_ONE_SELECT = "not_one_select"
    NOT_READ_ONLY = "not_read_only"  # INTO, FOR UPDATE, a CTE that writes
    SELECT_STAR = "select_star"  # the columns asked for are not named
    CLOCK_OR_RANDOM = "clock_or_random"  # another answer tomorrow
    LIMIT_WITHOUT_ORDER = "limit_without_order"
    REFUSED = "refused"  # the verifier does not run such a statement
    ERROR = "error"  # Postgres refuses it on some seed
    TIMEOUT = "timeout"
    UNSTABLE = "unstable"  # two runs, two results
    EMPTY = "empty"
    TOO_MANY_ROWS = "too_many_rows"
    ALL_NULL = "all_null"
    TIE_CUT = "tie_cut"  # on some seed a LIMIT or row_number decides between equals
    QUESTION_LENGTH = "question_length"
    AMBIGUOUS = "ambiguous"  # one question, two golds
    REPEATED = "repeated"  # one question twice for one gold
    NEAR_DUPLICATE = "near_duplicate"  # nearly the words of a question with another gold
    NEAR_HOLDOUT = "near_holdout"  # a train question that nearly is a holdout question


def statement_gate(statement: Statement) -> Reason | None:
    """One read-only SELECT that names its columns and means the same tomorrow."""
    statements = statement.tree.stmts
    if len(statements) != 1 or not statements[0].stmt.HasField("select_stmt"):
        return Reason.NOT_ONE_SELECT
    selects = statement.of_type("SelectStmt")
    writes = any(statement.of_type(name) for name in ("InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"))
    if writes or any(select.HasField("into_clause") or select.locking_clause for select in selects):
        return Reason.NOT_READ_ONLY
    if statement.of_type("A_Star"):
        return Reason.SELECT_STAR
    ages_until_now = any(len(call.args) == 1 for call in statement.calls("age"))
    if ages_until_now or statement.of_type("SQLValueFunction") or statement.calls(*CLOCK_OR_RANDOM):
        return Reason.CLOCK_OR_RANDOM
    if any(select.HasField("limit_count") and not select.sort_clause for select in selects):
        return Reason.LIMIT_WITHOUT_ORDER
    return None


_FAILURES = {"timeout": Reason.TIMEOUT, "oversized": Reason.TOO_MANY_ROWS}


def infrastructure_failure(executed: ExecutedStatement) -> str | None:
    """What broke under the statement; no verdict on it can be had then."""
    errors = (run.error for run in executed.executions if run.error is not None)
    return next((error for error in errors if error.startswith("infrastructure")), None)


def execution_gate(gold: ExecutedStatement, probe: ExecutedStatement | None) -> Reason | None:
    """Runs on every seed, the same twice, with 1 to 50 rows on the main seed and no tie cut (see `tie_probe`)."""
    if gold.refused is not None:
        return Reason.REFUSED
    for run in gold.executions:
        if run.error is not None:
            return _FAILURES.get(run.error.split(":")[0], Reason.ERROR)
    if not all(run.stable for run in gold.executions):
        return Reason.UNSTABLE
    main = gold.executions[0]
    if main.rows == 0:
        return Reason.EMPTY
    if main.rows is not None and main.rows > MAXIMUM_ROWS:
        return Reason.TOO_MANY_ROWS
    if main.all_null:
        return Reason.ALL_NULL
    if probe is not None and _signatures(probe.executions) != _signatures(gold.executions):
        return Reason.TIE_CUT
    return None


def _signatures(executions: Sequence[Execution]) -> list[tuple[str, str]]:
    return [(run.seed, run.signature) for run in executions]


def question_gate(question: str) -> Reason | None:
    """A length that a person would write."""
    low, high = QUESTION_CHARACTERS
    return None if low <= len(question) <= high else Reason.QUESTION_LENGTH
