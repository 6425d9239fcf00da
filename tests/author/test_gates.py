"""Each gate by itself; `test_planted` holds whole tasks."""

from decimal import Decimal

import pytest

from services.author.gates import (
    Reason,
    asks_for_order,
    columns_gate,
    count_gate,
    date_gate,
    execution_gate,
    infrastructure_failure,
    length_gate,
    opinion_gate,
    order_gate,
    outputs_of,
    reversal_gate,
    sql_gate,
    statement_gate,
    values_gate,
    values_of,
    without_order,
)
from services.author.gates.knowledge import Knowledge
from services.author.gates.reasons import ACCEPTABLE, MEANING
from services.author.gates.said import Said, akin
from services.author.grounds import REVERSE_ROWS, Grounds
from services.author.judging import judge
from services.author.statement import read, tie_probe
from services.author.teachers.base import Phrasing, Proposal
from shared.clients.verifier import VerifierClient
from shared.contracts.tasks import Archetype
from shared.contracts.verifier import (
    BundleSource,
    ExecutedStatement,
    ExecuteRequest,
    Execution,
    SandboxRequest,
    Status,
)
from tests.author.conftest import ServiceProcess


def _ran(**changes: object) -> Execution:
    whole = {"seed": "main", "rows": 3, "columns": ["a"], "signature": "s", "stable": True, "all_null": False}
    return Execution.model_validate({**whole, "error": None, **changes})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stable": False}, Reason.UNSTABLE),
        ({"rows": 0}, Reason.EMPTY),
        ({"rows": 51}, Reason.TOO_MANY_ROWS),
        ({"rows": 50}, None),
        ({"all_null": True}, Reason.ALL_NULL),
        ({"rows": None, "error": "timeout: 5 s"}, Reason.TIMEOUT),
        ({"rows": None, "error": "oversized: 201 rows"}, Reason.TOO_MANY_ROWS),
        ({"rows": None, "error": "sql_error: division by zero"}, Reason.ERROR),
    ],
)
def test_what_the_verifier_reports_decides(change: dict[str, object], reason: Reason | None) -> None:
    assert execution_gate(ExecutedStatement(executions=[_ran(**change)]), None) is reason


def test_a_variant_may_be_empty_but_not_all_of_them_and_none_may_fail_or_cut_a_tie() -> None:
    def seeds(*variants: dict[str, object]) -> ExecutedStatement:
        return ExecutedStatement(executions=[_ran(), *(_ran(seed="edges", **variant) for variant in variants)])

    assert execution_gate(seeds({"rows": 0}, {}), None) is None
    assert execution_gate(seeds({"rows": 0}, {"rows": 0}), None) is Reason.EMPTY_VARIANTS
    assert execution_gate(seeds({"rows": None, "error": "sql_error: x"}), None) is Reason.ERROR
    assert execution_gate(seeds({}), seeds({"signature": "other"})) is Reason.TIE_CUT
    assert execution_gate(seeds({}), seeds({})) is None
    assert reversal_gate(seeds({}), seeds({"signature": "other"})) is Reason.ORDER_DEPENDENT
    assert reversal_gate(seeds({}), seeds({})) is None


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


@pytest.mark.parametrize(
    "sql",
    ["SELECT a FROM t ORDER BY a LIMIT 1", "SELECT max(a) AS x, b FROM t GROUP BY b ORDER BY x DESC, 2 LIMIT 3"],
)
def test_rows_that_show_only_their_sort_keys_cannot_be_cut_wrong(sql: str) -> None:
    assert tie_probe(read(sql)) is None


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("VALUES (1)", Reason.NO_TABLE),
        ("EXPLAIN SELECT 1 FROM t", Reason.NOT_ONE_SELECT),
        ("WITH t AS (SELECT 1 AS a) SELECT a FROM t", Reason.NO_TABLE),
        ("SELECT a FROM t WHERE d = 'now'::date", Reason.CLOCK_OR_RANDOM),
        ("SELECT age(a, b) FROM t", None),
        ("SELECT a FROM t OFFSET 3", Reason.LIMIT_WITHOUT_ORDER),
        ("(SELECT a FROM t) EXCEPT (SELECT b FROM u) ORDER BY 1 LIMIT 2", None),
    ],
)
def test_a_statement_shows_what_it_is(sql: str, reason: Reason | None) -> None:
    assert statement_gate(read(sql)) is reason


def test_questions_have_a_readable_length() -> None:
    assert length_gate(Said("x" * 19)) is Reason.QUESTION_LENGTH
    assert length_gate(Said("x" * 20)) is None
    assert length_gate(Said("x" * 701)) is Reason.QUESTION_LENGTH


@pytest.mark.parametrize(
    "question",
    [
        "Select the names of customers from Spain who ordered twice.",
        "Show orders by group and where they were joined on a Monday.",
        "Count the customers (all of them) per city.",
        "What is the min. price and the max. price of lamps?",
        "Is the discount null for orders of this kind?",
    ],
)
def test_english_that_uses_the_words_of_sql_is_english(question: str) -> None:
    assert sql_gate(Said(question)) is None


@pytest.mark.parametrize(
    ("question", "notes", "reason"),
    [
        ("How many orders in the last 30 days?", "", Reason.AMBIGUOUS_DATE),
        ("How many orders in the last 30 days?", "Today is 2024-12-31.", None),
        ("Orders of this quarter by channel", "", Reason.AMBIGUOUS_DATE),
        ("Who was hired two years ago?", "", Reason.AMBIGUOUS_DATE),
        ("Orders before 04/05/2024 by channel", "", Reason.AMBIGUOUS_DATE),
        ("Orders before 25/05/2024 by channel", "", None),
        ("Orders before 05/05/2024 by channel", "", None),
        ("Orders in the last quarter of 2023", "", None),
        ("Change of orders from the previous month, for each month", "", None),
        ("Which customer has the most recent order?", "", None),
        ("Who is currently employed in finance?", "", None),
        ("Average delivery time\nLast 30 days = a range that ends today", "", None),
    ],
)
def test_a_date_means_one_day(question: str, notes: str, reason: Reason | None) -> None:
    assert date_gate(Said(question), notes) is reason


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("Show products sorted by price", True),
        ("Channels from the most to the least used", True),
        ("Team and salary, with the highest average salary first", True),
        ("List them in alphabetical order", True),
        ("Months and revenue, in chronological order", True),
        ("Which products were ordered by customers in Spain?", True),  # harmless: an ORDER BY may stay
        ("Top 5 products by price", False),
        ("How many orders were there in 2024?", False),
        ("Which customer placed the first order?", False),
        ("What is the highest price?", False),
    ],
)
def test_an_order_is_asked_for_in_so_many_words(question: str, asks: bool) -> None:
    assert asks_for_order(Said(question)) is asks


def test_an_order_that_nobody_asks_for_is_removed_unless_rows_depend_on_it() -> None:
    assert without_order(read("SELECT a FROM t ORDER BY b")) == "SELECT a FROM t"
    assert (
        without_order(read("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1"))
        == "SELECT a FROM t UNION SELECT b FROM u"
    )
    for needed in ("SELECT a FROM t ORDER BY b LIMIT 2", "SELECT DISTINCT ON (a) a FROM t ORDER BY a, b"):
        assert without_order(read(needed)) is None
    assert without_order(read("SELECT rank() OVER (ORDER BY a) FROM t")) is None
    assert order_gate(order_matters=True, ordered=False, rows=2) is Reason.ORDER_MISSING
    assert order_gate(order_matters=True, ordered=False, rows=1) is None


@pytest.mark.parametrize(
    ("question", "number"),
    [
        ("more than 1,250.50 euros", "1250.50"),
        ("at least twenty-five of them", "25"),
        ("the third quarter", "3"),
        ("two hundred units", "200"),
        ("over 30k in sales", "30000"),
        ("1.5 million", "1500000"),
        ("a 20% discount", "0.2"),
        ("within 2 weeks", "14"),
        ("in March", "3"),
        ("on Sundays", "0"),
    ],
)
def test_a_number_is_read_in_every_spelling(question: str, number: str) -> None:
    assert Decimal(number) in Said(question).numbers


def test_may_is_a_month_only_where_it_is_one() -> None:
    assert 5 not in Said("customers who may have no orders").months
    assert 5 in Said("orders in may").months
    assert 5 in Said("orders of May 2024").months


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("success", "successful"),
        ("cancelled", "canceled"),
        ("turkish", "turkey"),
        ("bought", "buy"),
        ("cities", "city"),
    ],
)
def test_forms_of_a_word_are_akin(one: str, other: str) -> None:
    assert akin(one, other)
    assert not akin(one, "delivered")


def _values_reason(knowledge: Knowledge, sql: str, question: str) -> Reason | None:
    return values_gate(values_of(read(sql), knowledge.keys), Said(question), knowledge)


@pytest.mark.parametrize(
    ("condition", "question", "reason"),
    [
        ("status = 'delivered'", "orders in total", Reason.UNKNOWN_VALUE),
        ("status = 'delivered'", "refund rate of orders", None),  # the notes' formula of it names the value
        ("status <> 'cancelled'", "margin of all orders", None),  # by the notes on margin, then those on revenue
        ("freight > 50", "orders with a freight above fifty", None),
        ("freight >= 51", "orders with a freight above 50", None),
        ("freight > 60", "orders with a freight above 50", Reason.UNKNOWN_VALUE),
        ("ordered_on >= '2024-04-01'", "orders from April 2024 on", None),
        ("ordered_on < '2024-07-01'", "orders up to Q2 2024", None),
        ("ordered_on < '2024-05-14'", "orders up to 13 May 2024", None),
        ("ordered_on < '2024-05-14'", "orders of 2024", Reason.UNKNOWN_VALUE),
        ("extract(year FROM ordered_on) = 2023", "orders of 2024 only", None),  # off by one: a bound may be
        ("extract(year FROM ordered_on) = 2021", "orders of 2024 only", Reason.UNKNOWN_VALUE),
        ("customer_id = 7", "orders of customer 7", None),
        ("customer_id = 7", "orders of customer 8", Reason.LITERAL_KEY),
        ("customer_id = 1", "orders of Ann Weber", Reason.LITERAL_KEY),
        ("date_trunc('month', ordered_on) = '2024-03-01'", "orders of March 2024", None),
        ("lower(channel) LIKE '%web%'", "orders of the Web channel", None),
    ],
)
def test_a_value_is_given_by_the_question_or_by_the_notes_it_draws_on(
    knowledge: Knowledge, condition: str, question: str, reason: Reason | None
) -> None:
    assert _values_reason(knowledge, f"SELECT count(*) FROM orders WHERE {condition}", question) is reason


def test_what_only_shapes_a_value_is_no_value(knowledge: Knowledge) -> None:
    sql = "SELECT round(avg(freight), 3), to_char(ordered_on, 'YYYY-MM'), 55 * count(*) FROM orders GROUP BY 2"
    assert values_of(read(sql), knowledge.keys) == ()


def _columns_reason(knowledge: Knowledge, sql: str, question: str) -> Reason | None:
    return columns_gate(outputs_of(read(sql)), Said(question), knowledge)


@pytest.mark.parametrize(
    ("columns", "question", "reason"),
    [
        ("supplier_id, supplier_name", "Which suppliers are there?", Reason.EXTRA_COLUMN),
        ("supplier_id, supplier_name", "Which suppliers are there? Id and name.", None),
        ("supplier_id, supplier_name", "The name of each supplier, ordered by supplier id", Reason.EXTRA_COLUMN),
        ("supplier_id, lead_days", "How long does each supplier take in days?", None),  # no name beside it
        ("supplier_name, lead_days", "Suppliers and how many days they take", None),
        ("supplier_name, origin", "Which suppliers are there?", Reason.EXTRA_COLUMN),
        ("count(*), max(lead_days)", "How many suppliers are there?", Reason.EXTRA_COLUMN),
        ("count(*), max(lead_days)", "How many suppliers are there, and what is the longest lead?", None),
    ],
)
def test_columns_are_those_asked_for(knowledge: Knowledge, columns: str, question: str, reason: Reason | None) -> None:
    assert _columns_reason(knowledge, f"SELECT {columns} FROM suppliers", question) is reason


def test_the_teachers_list_of_columns_decides_where_there_is_one() -> None:
    assert count_gate(asked=2, returned=3) is Reason.COLUMNS
    assert count_gate(asked=2, returned=2) is None
    assert count_gate(asked=0, returned=3) is None


def test_one_attempt_that_matches_is_enough() -> None:
    assert opinion_gate([]) is None
    assert opinion_gate([Status.MISMATCH, Status.MATCH]) is None
    assert opinion_gate([Status.MISMATCH, Status.NO_SQL]) is Reason.SECOND_OPINION


def test_every_reason_has_words_and_people_overrule_no_measurement() -> None:
    assert set(MEANING) == set(Reason)
    assert Reason.TIE_CUT not in ACCEPTABLE
    assert Reason.NEAR_HOLDOUT not in ACCEPTABLE


async def test_a_removed_order_is_recorded_and_the_gold_that_passed_has_none(grounds: Grounds) -> None:
    gold = "SELECT supplier_name FROM suppliers WHERE origin = 'Italy' ORDER BY supplier_id"
    asked, unasked = (
        "Suppliers from Italy by name, sorted by supplier id",
        "Which suppliers are from Italy? Names only.",
    )
    proposals = [Proposal(gold, Archetype.FILTER, False, (Phrasing("plain", text),)) for text in (asked, unasked)]
    kept, stripped = await judge(grounds, proposals)
    assert (kept.proposal.gold, kept.proposal.order_matters, kept.edits) == (gold, True, ())
    assert stripped.proposal.gold == gold.removesuffix(" ORDER BY supplier_id")
    assert (stripped.proposal.order_matters, stripped.edits) == (False, ("order_by_removed",))
    assert kept.reason is stripped.reason is None


async def test_reversed_rows_are_the_same_rows_in_the_opposite_order(grounds: Grounds) -> None:
    whole = "SELECT count(*), sum(order_id), min(ordered_on), max(status) FROM orders"
    first = "SELECT string_agg(order_id::text, ',') FROM orders WHERE customer_id = 1"
    plain = [run.executions for run in await grounds.execute([whole, first], repeat=1)]
    turned = [run.executions for run in await grounds.execute_reversed([whole, first])]
    assert plain[0] == turned[0]
    assert plain[1] != turned[1]


async def test_reversing_rows_bears_triggers_identities_generated_columns_and_deferred_keys(
    verifier: ServiceProcess,
) -> None:
    schema = """
    CREATE TABLE parents (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, touched integer DEFAULT 0);
    CREATE TABLE children (
      doubled integer GENERATED ALWAYS AS (2 * parent) STORED,
      parent integer REFERENCES parents DEFERRABLE INITIALLY DEFERRED, note text);
    CREATE TABLE bare ();
    CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.touched := NEW.touched + 1; RETURN NEW; END';
    CREATE TRIGGER touching BEFORE UPDATE ON parents FOR EACH ROW EXECUTE FUNCTION touch();
    """
    seed = """
    INSERT INTO children (parent, note) VALUES (2, 'b'), (1, NULL);
    INSERT INTO parents (name) VALUES ('x'), ('y'), ('z');
    """
    whole = [
        "SELECT id, name, touched FROM parents ORDER BY id",
        "SELECT doubled, parent, note FROM children ORDER BY parent",
    ]
    in_order = "SELECT string_agg(name, '') FROM parents"
    async with VerifierClient(verifier.url, verifier.token("author"), timeout_seconds=60) as client:
        ran = []
        for name, rows in (("as-loaded", seed), ("turned", seed + REVERSE_ROWS)):
            source = BundleSource(name="odd", schema_sql=schema, seed_sql=rows)
            await client.create_sandbox(SandboxRequest(sandbox_id=name, run_id=name, bundle=source))
            results = (await client.execute(name, ExecuteRequest(statements=[*whole, in_order]))).results
            ran.append([result.executions[0].signature for result in results])
            await client.delete_sandbox(name)
    assert ran[0][:2] == ran[1][:2]
    assert ran[0][2] != ran[1][2]
