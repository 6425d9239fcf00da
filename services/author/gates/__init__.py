"""The gates a proposal passes to become a task: small pure functions to a reason, None when it passes."""

from services.author.gates.columns import Output, columns_gate, count_gate, outputs_of
from services.author.gates.execution import MAXIMUM_ROWS, execution_gate, infrastructure_failure, reversal_gate
from services.author.gates.opinion import opinion_gate
from services.author.gates.ordering import asks_for_order, order_gate, without_order
from services.author.gates.question import date_gate, length_gate, sql_gate
from services.author.gates.reasons import ACCEPTABLE, MEANING, Reason
from services.author.gates.statement import statement_gate
from services.author.gates.values import Value, values_gate, values_of

__all__ = [
    "ACCEPTABLE",
    "MAXIMUM_ROWS",
    "MEANING",
    "Output",
    "Reason",
    "Value",
    "asks_for_order",
    "columns_gate",
    "count_gate",
    "date_gate",
    "execution_gate",
    "infrastructure_failure",
    "length_gate",
    "opinion_gate",
    "order_gate",
    "outputs_of",
    "reversal_gate",
    "sql_gate",
    "statement_gate",
    "values_gate",
    "values_of",
    "without_order",
]
