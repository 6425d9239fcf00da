"""Which order of rows a gold asks for: sort keys from its parse tree, then verdicts through a real sandbox."""

import postgast
import pytest

from services.verifier.gold_plan import plan_gold
from services.verifier.output_names import output_name, pb
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import BundleSource, SandboxRequest, Status, VerifyItem, VerifyRequest

SANDBOX = "ordered"
BUNDLE = BundleSource(
    name=SANDBOX,
    schema_sql="CREATE TABLE t (id int PRIMARY KEY, name text, kind text, n numeric, ts timestamp, tags text[]);",
    seed_sql="""
INSERT INTO t VALUES
  (1, 'b', 'x', 1.0, '2024-01-01 10:00', '{p,q}'), (2, 'a', 'x', 1.00, '2024-01-01 09:00', '{q}'),
  (3, 'C', 'y', 2, '2024-01-02 08:00', '{p}'), (4, 'c', 'y', NULL, '2024-01-02 07:00', '{r}'),
  (5, NULL, 'z', 3, '2024-01-03 00:00', NULL);
""",
)

# gold, whether each of its candidates' orders will do
CASES: dict[str, tuple[str, list[tuple[str, bool]]]] = {
    "no ORDER BY": ("SELECT id FROM t", [("SELECT id FROM t ORDER BY id DESC", True)]),
    "a key in the select list": (
        "SELECT id, n FROM t WHERE n IS NOT NULL ORDER BY n",
        [
            ("SELECT id, n FROM t WHERE n IS NOT NULL ORDER BY n, id DESC", True),
            ("SELECT id, n FROM t WHERE n IS NOT NULL ORDER BY id DESC", False),
        ],
    ),
    "a key that is not": (
        "SELECT id FROM t ORDER BY kind",
        [("SELECT id FROM t ORDER BY kind, id DESC", True), ("SELECT id FROM t ORDER BY id DESC", False)],
    ),
    "an expression": (
        "SELECT id FROM t WHERE name IS NOT NULL ORDER BY lower(name)",
        [
            ("SELECT id FROM t WHERE name IS NOT NULL ORDER BY lower(name), id DESC", True),
            ('SELECT id FROM t WHERE name IS NOT NULL ORDER BY name COLLATE "C"', False),
        ],
    ),
    "COLLATE": (
        'SELECT id FROM t WHERE name IS NOT NULL ORDER BY name COLLATE "C"',
        [
            ("SELECT id FROM t WHERE name IS NOT NULL ORDER BY ascii(name)", True),
            ("SELECT id FROM t WHERE name IS NOT NULL ORDER BY lower(name), id", False),
        ],
    ),
    "NULLS FIRST": (
        "SELECT id FROM t ORDER BY n NULLS FIRST",
        [("SELECT id FROM t ORDER BY n NULLS FIRST, id DESC", True), ("SELECT id FROM t ORDER BY n, id", False)],
    ),
    "USING": (
        "SELECT id FROM t ORDER BY kind USING >",
        [("SELECT id FROM t ORDER BY kind DESC, id DESC", True), ("SELECT id FROM t ORDER BY kind", False)],
    ),
    "an alias": (
        "SELECT id, upper(kind) AS k FROM t ORDER BY k",
        [
            ("SELECT id, upper(kind) FROM t ORDER BY 2, 1 DESC", True),
            ("SELECT id, upper(kind) FROM t ORDER BY -id", False),
        ],
    ),
    "an alias that hides a column, and the column": (
        "SELECT id, -id AS n FROM t ORDER BY n, t.n",
        [("SELECT id, -id FROM t ORDER BY id DESC", True), ("SELECT id, -id FROM t ORDER BY n, id", False)],
    ),
    "the natural name of a cast": (
        "SELECT id, ts::date FROM t ORDER BY ts",
        [("SELECT id, ts::date FROM t ORDER BY 2, 1 DESC", True), ("SELECT id, ts::date FROM t ORDER BY -id", False)],
    ),
    "the natural name of a CASE": (
        "SELECT CASE WHEN kind = 'x' THEN 2 ELSE 1 END, id FROM t ORDER BY \"case\"",
        [("SELECT CASE WHEN kind = 'x' THEN 2 ELSE 1 END, id FROM t ORDER BY 1, 2 DESC", True)],
    ),
    "an ordinal behind a star": (
        "SELECT * FROM t ORDER BY 3 DESC",
        [("SELECT * FROM t ORDER BY kind DESC, id DESC", True), ("SELECT * FROM t ORDER BY id", False)],
    ),
    "a name behind a star": (
        "SELECT * FROM t ORDER BY kind DESC",
        [("SELECT * FROM t ORDER BY kind DESC, id DESC", True), ("SELECT * FROM t ORDER BY id", False)],
    ),
    "DISTINCT": (
        "SELECT DISTINCT kind, n FROM t ORDER BY t.kind",
        [
            ("SELECT DISTINCT kind, n FROM t ORDER BY 1, 2 DESC", True),
            ("SELECT DISTINCT kind, n FROM t ORDER BY n", False),
        ],
    ),
    "DISTINCT with a star": (
        "SELECT DISTINCT * FROM t ORDER BY kind",
        [
            ("SELECT DISTINCT * FROM t ORDER BY kind, id DESC", True),
            ("SELECT DISTINCT * FROM t ORDER BY id DESC", False),
        ],
    ),
    "DISTINCT ON": (
        "SELECT DISTINCT ON (kind) kind, id FROM t ORDER BY kind, id DESC",
        [
            ("SELECT kind, max(id) FROM t GROUP BY 1 ORDER BY 1", True),
            ("SELECT kind, max(id) FROM t GROUP BY 1 ORDER BY 1 DESC", False),
        ],
    ),
    "GROUP BY with an aggregate that is not selected": (
        "SELECT kind FROM t GROUP BY kind ORDER BY count(*) DESC",
        [
            ("SELECT kind FROM t GROUP BY kind ORDER BY count(*) DESC, kind DESC", True),
            ("SELECT kind FROM t GROUP BY kind ORDER BY kind DESC", False),
        ],
    ),
    "GROUP BY with a column that is not selected": (
        "SELECT count(*) FROM t GROUP BY kind ORDER BY kind",
        [
            ("SELECT count(*) FROM t GROUP BY kind ORDER BY 1 DESC", True),
            ("SELECT count(*) FROM t GROUP BY kind ORDER BY 1", False),
        ],
    ),
    "a window": (
        "SELECT id FROM t ORDER BY rank() OVER (ORDER BY kind)",
        [("SELECT id FROM t ORDER BY kind, id DESC", True), ("SELECT id FROM t ORDER BY id DESC", False)],
    ),
    "an ORDER BY only in a window": (
        "SELECT id, rank() OVER (ORDER BY kind) FROM t",
        [("SELECT id, rank() OVER (ORDER BY kind) FROM t ORDER BY id DESC", True)],
    ),
    "an ORDER BY only in an aggregate": (
        "SELECT kind, string_agg(name, ',' ORDER BY name) FROM t GROUP BY kind",
        [("SELECT kind, string_agg(name, ',' ORDER BY name) FROM t GROUP BY kind ORDER BY kind DESC", True)],
    ),
    "an ORDER BY only in a subquery": (
        "SELECT id FROM (SELECT id FROM t ORDER BY kind LIMIT 4) x",
        [("SELECT id FROM t WHERE id < 5 ORDER BY id DESC", True)],
    ),
    "an ORDER BY only in a CTE": (
        "WITH x AS (SELECT id FROM t ORDER BY kind) SELECT id FROM x",
        [("SELECT id FROM t ORDER BY id DESC", True)],
    ),
    "a set operation": (
        "SELECT id, kind FROM t WHERE id < 3 UNION ALL SELECT id, kind FROM t WHERE id > 2 ORDER BY kind",
        [("SELECT id, kind FROM t ORDER BY kind, id DESC", True), ("SELECT id, kind FROM t ORDER BY id DESC", False)],
    ),
    "a set operation, ordered in one arm only": (
        "(SELECT id FROM t ORDER BY kind) UNION ALL (SELECT id FROM t WHERE false)",
        [("SELECT id FROM t ORDER BY id DESC", True)],
    ),
    "parentheses": (
        "((SELECT id FROM t ORDER BY kind))",
        [("SELECT id FROM t ORDER BY kind, id DESC", True), ("SELECT id FROM t ORDER BY id DESC", False)],
    ),
    "parentheses and a limit outside": (
        "(SELECT id FROM t ORDER BY kind) LIMIT 4",
        [
            ("SELECT id FROM t WHERE id < 5 ORDER BY kind, id DESC", True),
            ("SELECT id FROM t WHERE id < 5 ORDER BY -id", False),
        ],
    ),
    "a CTE": (
        "WITH x AS (SELECT id, kind FROM t) SELECT id FROM x ORDER BY kind",
        [("SELECT id FROM t ORDER BY kind, id DESC", True), ("SELECT id FROM t ORDER BY id DESC", False)],
    ),
    "a subquery as key": (
        "SELECT id FROM t ORDER BY (SELECT count(*) FROM t u WHERE u.kind = t.kind) DESC",
        [("SELECT id FROM t ORDER BY kind = 'z', id DESC", True), ("SELECT id FROM t ORDER BY id DESC", False)],
    ),
    "VALUES": ("VALUES (2), (1) ORDER BY column1", [("SELECT id FROM t WHERE id < 3 ORDER BY id", True)]),
    "an array as key": (
        "SELECT id FROM t WHERE id < 4 ORDER BY tags",
        [("SELECT id FROM t WHERE id < 4 ORDER BY CASE id WHEN 3 THEN 1 WHEN 1 THEN 2 ELSE 3 END", True)],
    ),
    "a LIMIT that cuts a tie": (
        "SELECT id FROM t ORDER BY kind LIMIT 1",
        [("SELECT id FROM t ORDER BY kind LIMIT 1", True), ("SELECT id FROM t WHERE kind = 'x' LIMIT 2", False)],
    ),
    "a tie cut by the limit, in two groups": (
        "SELECT id, kind FROM t WHERE id < 4 ORDER BY kind LIMIT 3",
        [("SELECT id, kind FROM t WHERE id < 4 ORDER BY kind, id DESC LIMIT 3", True)],
    ),
}


@pytest.fixture
async def ordered(client: VerifierClient) -> VerifierClient:
    await client.create_sandbox(SandboxRequest(sandbox_id=SANDBOX, run_id="tests", bundle=BUNDLE))
    return client


async def test_rows_may_swap_where_the_gold_s_keys_tie_and_nowhere_else(ordered: VerifierClient) -> None:
    cases = [(title, gold, sql, same) for title, (gold, tries) in CASES.items() for sql, same in [(gold, True), *tries]]
    items = [VerifyItem(sql=sql, gold=gold) for _, gold, sql, _ in cases]
    verdicts = (await ordered.verify(SANDBOX, VerifyRequest(items=items))).verdicts
    wrong = [
        (case, verdict.status, verdict.reason)
        for case, verdict in zip(cases, verdicts, strict=True)
        if verdict.status is not (Status.MATCH if case[3] else Status.MISMATCH)
    ]
    assert wrong == []


async def test_each_acceptable_gold_has_its_own_order(ordered: VerifierClient) -> None:
    golds = ["SELECT id FROM t ORDER BY id", "SELECT id FROM t ORDER BY kind DESC", "SELECT name FROM t"]
    tries = {
        "SELECT id FROM t ORDER BY 1": "same result as the gold on 1 seed(s)",
        "SELECT id FROM t ORDER BY kind DESC, id DESC": "same result as the gold on 1 seed(s)",
        "SELECT name FROM t ORDER BY id DESC": "same result as the gold on 1 seed(s)",
        "SELECT id FROM t ORDER BY id = 3, id": "the right rows in another order than asked for",
        "SELECT id, kind FROM t": "2 columns where the gold has 1",
        "SELECT id FROM t WHERE id < 3": "2 rows where the gold has 5",
        "SELECT id + 1 FROM t": "same shape, other values",
    }
    items = [VerifyItem(sql=sql, gold=golds) for sql in tries]
    verdicts = (await ordered.verify(SANDBOX, VerifyRequest(items=items))).verdicts
    assert {verdict.sql: verdict.reason for verdict in verdicts} == tries


async def test_the_closest_gold_is_spoken_of(ordered: VerifierClient) -> None:
    golds = [
        "SELECT id FROM t WHERE id < 3",
        "SELECT id FROM t",
        "SELECT id FROM t WHERE false",
        "SELECT no_such FROM t",
    ]
    for acceptable in (golds, golds[::-1]):
        item = VerifyItem(sql="SELECT id FROM t WHERE id < 5", gold=acceptable)
        (verdict,) = (await ordered.verify(SANDBOX, VerifyRequest(items=[item]))).verdicts
        assert (verdict.rows, verdict.gold_rows) == (4, 5)


def test_what_the_deparser_might_get_wrong_is_not_run() -> None:
    plan = plan_gold("SELECT a FROM t ORDER BY b")
    assert (plan.sql, plan.hidden_columns) == ('SELECT a, b AS "sort key 0" FROM t ORDER BY b', 1)


@pytest.mark.parametrize(
    "expression, name",
    [
        ("a", "a"),
        ("t.a", "a"),
        ("a::text", "a"),
        ("'1'::int", "int4"),
        ("'1'::text::int", "int4"),
        ("(a + 1)::numeric(5, 2)", "numeric"),
        ("count(*)::text", "count"),
        ("a + 1", "?column?"),
        ("coalesce(a, 1)", "coalesce"),
        ("nullif(a, 1)", "nullif"),
        ("greatest(a, 1)", "greatest"),
        ("least(a, 1)", "least"),
        ("CASE WHEN a THEN 1 END", "case"),
        ("CASE WHEN a THEN 1 ELSE b END", "b"),
        ("ARRAY[1]", "array"),
        ("ROW(1, 2)", "row"),
        ("EXISTS (SELECT 1)", "exists"),
        ("ARRAY(SELECT 1)", "array"),
        ("(SELECT max(b) FROM u)", "max"),
        ("(SELECT b AS c FROM u)", "c"),
        ("current_date", "current_date"),
        ("localtimestamp(0)", "localtimestamp"),
        ('a COLLATE "C"', "a"),
        ("(x).y", "y"),
        ("a[1]", "a"),
        ("extract(year FROM a)", "extract"),
        ("a AS b", "b"),
    ],
)
def test_outputs_are_named_as_postgres_does(expression: str, name: str) -> None:
    select = postgast.parse(f"SELECT {expression} FROM t").stmts[0].stmt.select_stmt
    assert isinstance(select, pb.SelectStmt)
    assert output_name(select.target_list[0].res_target) == name
