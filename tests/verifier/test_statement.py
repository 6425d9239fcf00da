"""The parse allowlist and the plans of golds."""

import postgast
import pytest

from services.verifier.functions import ALLOWED_NODES
from services.verifier.gold_plan import plan_gold
from services.verifier.parser import Parser
from services.verifier.statement import MAXIMUM_BYTES, _nodes, _refusal, analyse, precheck

ALLOWED = [
    "SELECT a, sum(b) OVER (PARTITION BY c ORDER BY d) FROM t JOIN u USING (a) WHERE EXISTS (SELECT 1 FROM v)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r, t",
    "SELECT date_trunc('month', d), extract(year FROM d), d AT TIME ZONE 'UTC', d::date + interval '1 day' FROM t",
    "SELECT count(*) FILTER (WHERE a > 1), percentile_cont(0.5) WITHIN GROUP (ORDER BY b) FROM t",
    "SELECT a FROM t GROUP BY ROLLUP (a) HAVING grouping(a) = 0 ORDER BY 1 LIMIT 3 OFFSET 1",
    "SELECT CASE WHEN a IS NULL THEN 'x' ELSE b || 'y' END, coalesce(a, 0), greatest(a, b), nullif(a, b) FROM t",
    "SELECT substring(a FROM 1 FOR 2), trim(a), position('x' IN a), a SIMILAR TO 'b', a LIKE 'c' ESCAPE '!' FROM t",
    "SELECT ARRAY[1, 2], (ARRAY[1, 2])[1], ROW(1, 2), x'1f', to_char(d, 'YYYY-MM') FROM t",
    "SELECT * FROM t LEFT JOIN LATERAL (SELECT * FROM u WHERE u.a = t.a LIMIT 1) z ON true",
    "SELECT a FROM t UNION ALL SELECT b FROM u EXCEPT SELECT c FROM v",
    "SELECT DISTINCT ON (a) a, t.* FROM t ORDER BY a, b",
    "SELECT * FROM generate_series(date '2024-01-01', date '2024-02-01', interval '1 day') AS g(d), t",
    "TABLE t",
    "SELECT (jsonb_each(d)).key, (t.address).city, t.lo_revenue, t.pg_rating, t.has_discount, t.version FROM t",
    "SELECT a::region, 'north'::public.region, b::registration_status[] FROM t",
    "SELECT json_value(a, '$.b' RETURNING int DEFAULT 0 ON EMPTY), json_exists(a, '$.c'), a IS JSON OBJECT FROM t",
    "SELECT json_object('a': b RETURNING jsonb), json_arrayagg(a ORDER BY b), json_objectagg(a: b) FROM t",
    "WITH RECURSIVE s AS (SELECT 1 AS a FROM t UNION ALL SELECT a + 1 FROM s) SEARCH DEPTH FIRST BY a SET o "
    "CYCLE a SET c USING p SELECT * FROM s",
    "SELECT x.a, f.* FROM jsonb_to_recordset('[]') AS x(a int, b text), t AS f (a, b) JOIN u USING (a) AS k",
    "SELECT 0, 1.5, true, false, NULL, b'01', x'1f', E'\\n', a COLLATE \"C\", a[1:2] FROM t",
]

REFUSED = [
    "SELECT 1; SELECT 2",
    "",
    "-- nothing",
    "COMMIT",
    "SET statement_timeout = 0",
    "EXPLAIN SELECT 1",
    "SELECT 1 INTO x",
    "SELECT * FROM t FOR UPDATE",
    "SELECT * FROM (SELECT * FROM t FOR SHARE) x",
    "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
    "WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM x",
    "SELECT * FROM pg_class",
    "SELECT * FROM pg_catalog.pg_class",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM t WHERE a IN (SELECT pg_sleep(1)::text)",
    "SELECT * FROM ROWS FROM (generate_series(1, 2), pg_sleep(1))",
    "SELECT set_config('statement_timeout', '0', false)",
    "SELECT public.sum(a) FROM t",
    "SELECT (t.a).pg_sleep FROM t",
    "SELECT g.pg_sleep FROM abs(1::float8) g",
    "SELECT a.b.c.pg_sleep FROM t",
    "SELECT t.a FROM t ORDER BY t.nextval",
    "SELECT ctid FROM t",
    "SELECT t.xmin FROM t",
    "SELECT (t).tableoid FROM t",
    "SELECT is_normalized('a')",
    "SELECT a IS NFC NORMALIZED FROM t",
    "SELECT a OPERATOR(public.+) b FROM t",
    "SELECT a FROM t ORDER BY a USING OPERATOR(public.<)",
    "SELECT a::regclass FROM t",
    "SELECT a::pg_catalog.regclass[] FROM t",
    "SELECT a::xml FROM t",
    "SELECT random() FROM t",
    "SELECT * FROM t TABLESAMPLE BERNOULLI (50)",
    "SELECT * FROM other.public.t",
    "SELECT current_user",
    "SELECT user FROM t",
    "SELECT $1",
    "SELECT 1 LIMIT pg_sleep(1)",
    "SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY pg_sleep(1))",
    "SELECT json_object('a': pg_sleep(1))",
    "SELECT 1" + " + 1" * 4000,
]


@pytest.mark.parametrize("sql", ALLOWED)
def test_analytics_are_allowed(sql: str) -> None:
    analysis = analyse(sql)
    assert analysis.runnable, analysis
    assert analysis.reads_table


@pytest.mark.parametrize("sql", REFUSED)
def test_anything_else_is_refused(sql: str) -> None:
    analysis = analyse(sql)
    assert analysis.refused is not None
    assert analysis.syntax_error is None


def test_a_syntax_error_is_no_refusal() -> None:
    analysis = analyse("SELECT FROM WHERE")
    assert analysis.syntax_error is not None
    assert analysis.refused is None


NODES = """
A_ArrayExpr A_Const A_Expr A_Indices A_Indirection A_Star Alias BitString BoolExpr Boolean BooleanTest CTECycleClause
CTESearchClause CaseExpr CaseWhen CoalesceExpr CollateClause ColumnDef ColumnRef CommonTableExpr Float FuncCall
GroupingFunc GroupingSet Integer JoinExpr JsonAggConstructor JsonArgument JsonArrayAgg JsonArrayConstructor
JsonBehavior JsonFormat JsonFuncExpr JsonIsPredicate JsonKeyValue JsonObjectAgg JsonObjectConstructor JsonOutput
JsonReturning JsonValueExpr List MinMaxExpr NamedArgExpr NullTest RangeFunction RangeSubselect RangeVar RawStmt
ResTarget RowExpr SQLValueFunction SelectStmt SortBy String SubLink TypeCast TypeName WindowDef WithClause
"""
"""What a candidate may be made of, written down a second time: a change to the allowlist is a change here."""


def test_only_known_nodes_are_allowed_and_all_others_of_the_grammar_refused() -> None:
    grammar = {field.message_type.name for field in postgast.pg_query_pb2.Node.DESCRIPTOR.fields}
    assert set(NODES.split()) == ALLOWED_NODES
    assert grammar >= ALLOWED_NODES
    assert len(grammar) > 250
    refused = {kind for kind in {*grammar, "NodeOfTomorrow"} - ALLOWED_NODES if _refusal(kind, {})}
    assert refused == {*grammar, "NodeOfTomorrow"} - ALLOWED_NODES


def test_a_field_whose_node_is_not_known_is_refused_by_its_name() -> None:
    nodes = dict(_nodes("SelectStmt", {"fieldOfTomorrow": {"funcname": "pg_sleep"}}))
    assert _refusal("fieldOfTomorrow", nodes["fieldOfTomorrow"]) is not None


@pytest.mark.parametrize(
    "sql, reads",
    [
        ("SELECT 1", False),
        ("VALUES (1)", False),
        ("SELECT * FROM generate_series(1, 3)", False),
        ("WITH author AS (SELECT 1) SELECT * FROM author", False),
        ("SELECT 1 FROM author", True),
        ("WITH x AS (SELECT * FROM author) SELECT 1 FROM x", True),
        ("SELECT (SELECT max(a) FROM author)", True),
    ],
)
def test_reading_a_table_is_told_from_computing(sql: str, reads: bool) -> None:
    assert analyse(sql).reads_table is reads


@pytest.mark.parametrize("sql", ["SELECT now()", "SELECT current_date", "SELECT 'today'::date", "SELECT age(d) FROM t"])
def test_a_statement_that_reads_the_clock_is_marked(sql: str) -> None:
    assert analyse(sql).reads_clock


def test_texts_that_no_parser_should_see() -> None:
    assert precheck("SELECT 'a\x00b'") == "holds a NUL byte"
    assert precheck("SELECT '\ud800'") == "is not valid Unicode"
    assert precheck("SELECT '" + "x" * MAXIMUM_BYTES + "'") == "is longer than 16 KB"
    assert precheck("SELECT 1") is None


@pytest.mark.parametrize(
    "sql, keys, hidden",
    [
        ("SELECT a FROM t", (), 0),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a) x", (), 0),
        ("SELECT rank() OVER (ORDER BY a) FROM t", (), 0),
        ("SELECT a FROM t ORDER BY b DESC, c + 1", (-2, -1), 2),
        ("SELECT a AS x FROM t ORDER BY x", ("x",), 0),
        ("SELECT a, b FROM t ORDER BY 2", (1,), 0),
        ("SELECT DISTINCT a + 1 FROM t ORDER BY a + 1", (0,), 0),
        ("SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, c", ("a", -1), 1),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY a", ("a",), 0),
        ("SELECT g, count(*) FROM t GROUP BY g ORDER BY count(*) DESC, g", (-1, "g"), 1),
    ],
)
def test_sort_keys_of_the_outermost_order_by(sql: str, keys: tuple[int | str, ...], hidden: int) -> None:
    plan = plan_gold(sql)
    assert plan.error is None
    assert (plan.sort_keys, plan.hidden_columns, plan.ordered) == (keys, hidden, bool(keys))


def test_a_parser_process_that_dies_costs_no_neighbour_its_answer() -> None:
    parser = Parser(processes=1)
    try:
        first, _ = parser.parse(["SELECT 1 FROM t"], [])
        process = parser._all[0]._process
        assert process is not None
        process.kill()
        process.wait()
        second, plans = parser.parse(["SELECT 2 FROM t", "SELECT 1 FROM t", "COMMIT"], ["SELECT a FROM t ORDER BY a"])
        assert first["SELECT 1 FROM t"] == second["SELECT 1 FROM t"] == second["SELECT 2 FROM t"]
        assert second["COMMIT"].refused is not None
        assert plans["SELECT a FROM t ORDER BY a"].ordered
    finally:
        parser.close()
