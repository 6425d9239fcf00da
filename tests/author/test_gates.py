"""Planted bad proposals are rejected with the right reason, good ones pass. Golds run on the real verifier."""

import pytest

from services.author.gates import Reason, execution_gate, infrastructure_failure, question_gate, statement_gate
from services.author.judging import judge
from services.author.statement import read, tie_probe
from services.author.teachers.base import Phrasing, Proposal
from shared.clients.verifier import VerifierClient
from shared.contracts.tasks import Archetype
from shared.contracts.verifier import ExecutedStatement, Execution

PLANTED = [
    ("SELECT FROM WHERE", Reason.NOT_SQL),
    ("SELECT 1; SELECT 2", Reason.NOT_ONE_SELECT),
    ("DELETE FROM orders", Reason.NOT_ONE_SELECT),
    ("", Reason.NOT_ONE_SELECT),
    ("WITH gone AS (DELETE FROM orders RETURNING order_id) SELECT order_id FROM gone", Reason.NOT_READ_ONLY),
    ("SELECT order_id FROM orders FOR UPDATE", Reason.NOT_READ_ONLY),
    ("SELECT order_id INTO copied FROM orders", Reason.NOT_READ_ONLY),
    ("SELECT * FROM suppliers", Reason.SELECT_STAR),
    ("SELECT s.* FROM suppliers s", Reason.SELECT_STAR),
    ("SELECT supplier_name FROM (SELECT * FROM suppliers) s", Reason.SELECT_STAR),
    ("SELECT count(*) FROM orders WHERE ordered_on < now()", Reason.CLOCK_OR_RANDOM),
    ("SELECT count(*) FROM orders WHERE ordered_on < CURRENT_DATE", Reason.CLOCK_OR_RANDOM),
    ("SELECT max(age(ordered_on)) FROM orders", Reason.CLOCK_OR_RANDOM),
    ("SELECT order_id FROM orders ORDER BY pg_catalog.random() LIMIT 3", Reason.CLOCK_OR_RANDOM),
    ("SELECT order_id FROM orders LIMIT 3", Reason.LIMIT_WITHOUT_ORDER),
    ("SELECT count(*) FROM (SELECT order_id FROM orders LIMIT 3) o", Reason.LIMIT_WITHOUT_ORDER),
    ("SELECT lo_get(1) FROM suppliers", Reason.REFUSED),
    ("SELECT nothing FROM orders", Reason.ERROR),
    ("SELECT 1 / (count(*) - count(*)) FROM orders", Reason.ERROR),
    ("SELECT order_id FROM orders WHERE freight < 0", Reason.EMPTY),
    ("SELECT order_id FROM orders", Reason.TOO_MANY_ROWS),
    ("SELECT employee_id FROM employees CROSS JOIN suppliers", Reason.TOO_MANY_ROWS),
    ("SELECT max(freight) FROM orders WHERE freight < 0", Reason.ALL_NULL),
    ("SELECT customer_name FROM customers ORDER BY country LIMIT 5", Reason.TIE_CUT),
    (
        "SELECT count(*) FROM (SELECT city FROM customers ORDER BY country LIMIT 5) c WHERE city = 'Graz'",
        Reason.TIE_CUT,
    ),
    ("SELECT customer_id, row_number() OVER (ORDER BY city) FROM customers WHERE country = 'Spain'", Reason.TIE_CUT),
]

CLEAN = [
    "SELECT count(*) FROM orders",
    "SELECT customer_name FROM customers ORDER BY country, customer_id LIMIT 5",
    "SELECT team, employee_name FROM employees ORDER BY 2 LIMIT 40",
    "SELECT age(DATE '2024-02-01', DATE '2024-01-01')",
    "SELECT supplier_name, row_number() OVER (ORDER BY supplier_id) FROM suppliers",
    "WITH few AS (SELECT supplier_id FROM suppliers) SELECT count(*) FROM few",
    "(SELECT supplier_id FROM suppliers) EXCEPT (SELECT supplier_id FROM products WHERE price < 50) ORDER BY 1",
]


def _proposal(gold: str) -> Proposal:
    return Proposal(gold, Archetype.FILTER, False, (Phrasing("plain", "What would you like to know today?"),))


async def test_each_planted_gold_is_rejected_with_its_reason_and_no_clean_one_is(
    sandbox: tuple[VerifierClient, str],
) -> None:
    planted = [_proposal(gold) for gold, _ in PLANTED] + [_proposal(gold) for gold in CLEAN]
    judged = await judge(*sandbox, 100, planted)
    assert [entry.position for entry in judged] == list(range(100, 100 + len(planted)))
    wanted = [*PLANTED, *((gold, None) for gold in CLEAN)]
    assert [(entry.proposal.gold, entry.reason) for entry in judged] == wanted


def _ran(**changes: object) -> Execution:
    whole = {"seed": "main", "rows": 3, "columns": ["a"], "signature": "s", "stable": True, "all_null": False}
    return Execution.model_validate({**whole, "error": None, **changes})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stable": False}, Reason.UNSTABLE),
        ({"rows": 51}, Reason.TOO_MANY_ROWS),
        ({"rows": 50}, None),
        ({"rows": None, "error": "timeout: 5 s"}, Reason.TIMEOUT),
        ({"rows": None, "error": "oversized: 201 rows"}, Reason.TOO_MANY_ROWS),
        ({"rows": None, "error": "sql_error: division by zero"}, Reason.ERROR),
    ],
)
def test_what_the_verifier_reports_decides(change: dict[str, object], reason: Reason | None) -> None:
    assert execution_gate(ExecutedStatement(executions=[_ran(**change)]), None) is reason


def test_a_variant_may_be_empty_but_may_not_fail_or_cut_a_tie() -> None:
    def seeds(**variant: object) -> ExecutedStatement:
        return ExecutedStatement(executions=[_ran(), _ran(seed="edges", **variant)])

    assert execution_gate(seeds(rows=0), None) is None
    assert execution_gate(seeds(rows=None, error="sql_error: x"), None) is Reason.ERROR
    assert execution_gate(seeds(), seeds(signature="other")) is Reason.TIE_CUT
    assert execution_gate(seeds(), seeds()) is None


def test_a_broken_sandbox_is_no_verdict() -> None:
    broken = ExecutedStatement(executions=[_ran(), _ran(rows=None, error="infrastructure: gone")])
    assert infrastructure_failure(broken) == "infrastructure: gone"
    assert infrastructure_failure(ExecutedStatement(executions=[_ran()])) is None


def test_a_tie_probe_widens_limits_and_row_numbers_at_any_depth() -> None:
    assert tie_probe(read("SELECT a FROM t")) is None
    nested = tie_probe(read("SELECT a FROM (SELECT a FROM t ORDER BY b LIMIT 2) x"))
    assert nested is not None
    assert "FETCH FIRST 2 ROWS WITH TIES" in nested
    ranked = tie_probe(read("SELECT row_number() OVER (ORDER BY b) FROM t"))
    assert ranked is not None
    assert ranked.startswith("SELECT rank() OVER")


def test_questions_have_a_readable_length() -> None:
    assert question_gate("x" * 19) is Reason.QUESTION_LENGTH
    assert question_gate("x" * 20) is None
    assert question_gate("x" * 701) is Reason.QUESTION_LENGTH


def test_a_gold_that_passes_the_statement_gate_is_one_select() -> None:
    assert statement_gate(read("VALUES (1)")) is None
    assert statement_gate(read("EXPLAIN SELECT 1")) is Reason.NOT_ONE_SELECT
