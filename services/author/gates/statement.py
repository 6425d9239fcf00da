"""What a statement alone shows. Pure."""

from services.author.gates.reasons import Reason
from services.author.statement import Statement, tables_of

CLOCK_OR_RANDOM = (
    *("now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday"),
    *("random", "random_normal", "setseed", "gen_random_uuid", "uuidv4", "uuidv7"),
    *("pg_sleep", "nextval", "txid_current", "pg_current_xact_id", "pg_backend_pid"),
)
CLOCK_WORDS = frozenset({"now", "today", "yesterday", "tomorrow"})
"""Date literals that Postgres reads from the clock."""


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
    if _reads_clock(statement):
        return Reason.CLOCK_OR_RANDOM
    if any(
        (select.HasField("limit_count") or select.HasField("limit_offset")) and not select.sort_clause
        for select in selects
    ):
        return Reason.LIMIT_WITHOUT_ORDER
    return None if tables_of(statement) else Reason.NO_TABLE


def _reads_clock(statement: Statement) -> bool:
    ages_until_now = any(len(call.args) == 1 for call in statement.calls("age"))
    casts = statement.of_type("TypeCast")
    words = {cast.arg.a_const.sval.sval.strip().lower() for cast in casts if cast.arg.HasField("a_const")}
    return bool(
        ages_until_now
        or statement.of_type("SQLValueFunction")
        or statement.calls(*CLOCK_OR_RANDOM)
        or words & CLOCK_WORDS
    )
