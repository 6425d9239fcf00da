"""Why a proposal is no task: the codes every gate speaks, with what each means to a person."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a proposal, or one of its questions, is no task."""

    # the reply
    UNREADABLE = "unreadable"
    # the statement
    NOT_SQL = "not_sql"
    NOT_ONE_SELECT = "not_one_select"
    NOT_READ_ONLY = "not_read_only"
    SELECT_STAR = "select_star"
    CLOCK_OR_RANDOM = "clock_or_random"
    LIMIT_WITHOUT_ORDER = "limit_without_order"
    NO_TABLE = "no_table"
    ORDER_MISSING = "order_missing"
    ORDER_NOT_ASKED = "order_not_asked"
    # its execution
    REFUSED = "refused"
    ERROR = "error"
    TIMEOUT = "timeout"
    UNSTABLE = "unstable"
    EMPTY = "empty"
    EMPTY_VARIANTS = "empty_variants"
    TOO_MANY_ROWS = "too_many_rows"
    ALL_NULL = "all_null"
    TIE_CUT = "tie_cut"
    ORDER_DEPENDENT = "order_dependent"
    # the question
    QUESTION_LENGTH = "question_length"
    SQL_IN_QUESTION = "sql_in_question"
    AMBIGUOUS_DATE = "ambiguous_date"
    # the question beside its gold
    COLUMNS = "columns"
    EXTRA_COLUMN = "extra_column"
    UNKNOWN_VALUE = "unknown_value"
    LITERAL_KEY = "literal_key"
    SECOND_OPINION = "second_opinion"
    # all tasks of a domain
    AMBIGUOUS = "ambiguous"
    REPEATED = "repeated"
    NEAR_DUPLICATE = "near_duplicate"
    SAME_RESULT = "same_result"
    NEAR_HOLDOUT = "near_holdout"
    # people
    REVIEWED = "reviewed"


MEANING: dict[Reason, str] = {
    Reason.UNREADABLE: "the model's reply holds an item that is not JSON, incomplete or cut off",
    Reason.NOT_SQL: "Postgres' grammar does not accept the gold",
    Reason.NOT_ONE_SELECT: "the gold is not exactly one SELECT",
    Reason.NOT_READ_ONLY: "the gold writes or locks: INTO, FOR UPDATE, a CTE that writes",
    Reason.SELECT_STAR: "the gold names no columns",
    Reason.CLOCK_OR_RANDOM: "the gold reads the clock or draws at random: another answer tomorrow",
    Reason.LIMIT_WITHOUT_ORDER: "a LIMIT without ORDER BY keeps rows by chance",
    Reason.NO_TABLE: "the gold reads no table: an answer written down, right on the main seed only",
    Reason.ORDER_MISSING: "the teacher says that order matters and the gold gives none",
    Reason.ORDER_NOT_ASKED: "other questions of this gold ask for its order, this one does not",
    Reason.REFUSED: "the verifier does not run such a statement",
    Reason.ERROR: "Postgres refuses the gold on some seed",
    Reason.TIMEOUT: "the gold ran out of time on some seed",
    Reason.UNSTABLE: "two runs, two results",
    Reason.EMPTY: "no rows on the main seed",
    Reason.EMPTY_VARIANTS: "no rows on any variant: only the main seed would judge it",
    Reason.TOO_MANY_ROWS: "more rows than a person reads",
    Reason.ALL_NULL: "nothing but NULL on the main seed",
    Reason.TIE_CUT: "a LIMIT or row_number decides between equals",
    Reason.ORDER_DEPENDENT: "another result when the same rows lie in another order on disk",
    Reason.QUESTION_LENGTH: "the question is shorter than 20 or longer than 700 characters",
    Reason.SQL_IN_QUESTION: "the question holds SQL",
    Reason.AMBIGUOUS_DATE: "the question has a date that two readers read differently",
    Reason.COLUMNS: "the gold returns another number of columns than asked for",
    Reason.EXTRA_COLUMN: "the gold returns a column that the question never asks for",
    Reason.UNKNOWN_VALUE: "the gold uses a value that neither question, notes nor schema comments give",
    Reason.LITERAL_KEY: "the gold has a row's key in place of the rule: right on the main seed only",
    Reason.SECOND_OPINION: "an independent attempt from the question alone does not match the gold",
    Reason.AMBIGUOUS: "one question, two golds",
    Reason.REPEATED: "the same question twice for one gold",
    Reason.NEAR_DUPLICATE: "nearly the words of a question with another gold",
    Reason.SAME_RESULT: "another gold that gives the same rows on every seed",
    Reason.NEAR_HOLDOUT: "a train task that nearly is a holdout task, by words or by result",
    Reason.REVIEWED: "a person rejected or replaced it",
}

ACCEPTABLE = frozenset(
    {
        *(Reason.EXTRA_COLUMN, Reason.UNKNOWN_VALUE, Reason.LITERAL_KEY, Reason.AMBIGUOUS_DATE),
        *(Reason.SQL_IN_QUESTION, Reason.SECOND_OPINION),
    }
)
"""Judgements that a person may overrule: they read a question's meaning. What a database measured stands."""
