"""Single-edit mutants by parse tree."""

from random import Random

import postgast
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.suites.mutation import ColumnFacts, mutants
from services.verifier.suites.study import study_gold, study_seed
from shared.contracts.suites import MutationKind as Kind
from shared.sql import normalise

FACTS = {
    "author": [
        ColumnFacts("id", "integer", False, []),
        ColumnFacts("name", "text", True, ["Ada", "Bo"]),
        ColumnFacts("city", "text", False, ["Rome"]),
        ColumnFacts("born", "date", True, []),
    ],
    "book": [
        ColumnFacts("id", "integer", False, []),
        ColumnFacts("author_id", "integer", True, []),
        ColumnFacts("price", "numeric(8,2)", False, []),
        ColumnFacts("sold", "integer", False, []),
    ],
}


def mutated(sql: str, kind: Kind) -> set[str]:
    return {mutant.sql for mutant in mutants(sql, FACTS, 1000, Random(1)) if mutant.kind is kind}


BOOK = "SELECT 1 FROM author a JOIN book b ON"
ORDERED = "SELECT x FROM a ORDER BY x"


@pytest.mark.parametrize(
    "kind, gold, expected",
    [
        (
            Kind.JOIN_TYPE,
            "FROM a JOIN b ON x = y",
            [f"FROM a {how} JOIN b ON x = y" for how in ("LEFT", "RIGHT", "FULL")],
        ),
        (
            Kind.JOIN_TYPE,
            "FROM a LEFT JOIN b USING (x)",
            [f"FROM a {how}JOIN b USING (x)" for how in ("", "RIGHT ", "FULL ")],
        ),
        (Kind.JOIN_TYPE, "FROM a CROSS JOIN b", []),
        (Kind.COMPARISON, "FROM a WHERE x < 3", ["FROM a WHERE x <= 3", "FROM a WHERE x > 3"]),
        (
            Kind.COMPARISON,
            "FROM a WHERE x BETWEEN 1 AND 3",
            ["FROM a WHERE x >= 1 AND x < 3", "FROM a WHERE x > 1 AND x <= 3"],
        ),
        (
            Kind.PREDICATE,
            "FROM a WHERE x AND y AND z",
            [f"FROM a WHERE {two}" for two in ("x AND y", "x AND z", "y AND z")],
        ),
        (Kind.PREDICATE, "FROM a WHERE x OR y", ["FROM a WHERE x", "FROM a WHERE y"]),
        (Kind.PREDICATE, "FROM a WHERE x = 1", ["FROM a"]),
        (Kind.CONNECTIVE, "FROM a WHERE x AND y", ["FROM a WHERE x OR y"]),
        (Kind.NEGATION, "FROM a WHERE x LIKE 'b'", ["FROM a WHERE x NOT LIKE 'b'"]),
        (Kind.NEGATION, "FROM a WHERE NOT EXISTS (SELECT 1)", ["FROM a WHERE EXISTS (SELECT 1)"]),
        (Kind.NEGATION, "FROM a WHERE x IN (SELECT 1)", ["FROM a WHERE NOT x IN (SELECT 1)"]),
        (Kind.NEGATION, "FROM a WHERE x IN (1, 2)", ["FROM a WHERE x NOT IN (1, 2)"]),
        (Kind.NEGATION, "FROM a WHERE x", ["FROM a WHERE NOT x"]),
        (Kind.LITERAL, "FROM a WHERE x = 0.5", ["FROM a WHERE x = 0.4", "FROM a WHERE x = 0.6"]),
        (Kind.LITERAL, "FROM a WHERE x < 2147483647", ["FROM a WHERE x < 2147483646"]),
        (Kind.LIMIT, "FROM a LIMIT 2147483647", ["FROM a LIMIT 2147483646", "FROM a"]),
        (Kind.LITERAL, "FROM author WHERE name = 'Bo'", ["FROM author WHERE name = 'Ada'"]),
        (
            Kind.LITERAL,
            "FROM author WHERE born = '2023-03-01'",
            [f"FROM author WHERE born = '2023-{day}'" for day in ("02-28", "03-02")],
        ),
        (
            Kind.LIKE,
            "FROM a WHERE x LIKE '%b%'",
            [f"FROM a WHERE x {like}" for like in ("ILIKE '%b%'", "LIKE 'b%'", "LIKE '%b'")],
        ),
        (Kind.NULL_HANDLING, "FROM a WHERE y IS NULL", ["FROM a WHERE y IS NOT NULL"]),
        (
            Kind.INTERVAL,
            "FROM a WHERE x > now() - interval '6 months'",
            [f"FROM a WHERE x > now() - interval '{n} months'" for n in (5, 7)],
        ),
    ],
)
def test_edits_of_joins_and_conditions(kind: Kind, gold: str, expected: list[str]) -> None:
    found = {normalise(sql) for sql in mutated(f"SELECT z {gold}", kind)}
    assert found == {normalise(f"SELECT z {sql}") for sql in expected}


@pytest.mark.parametrize(
    "kind, gold, expected",
    [
        (Kind.ARITHMETIC, "x + y * z", ["x - y * z", "x + y / z"]),
        (Kind.AGGREGATE, "sum(x)", ["avg(x)", "max(x)"]),
        (Kind.COUNT, "count(x)", ["count(*)"]),
        (Kind.DISTINCT, "count(x)", ["count(DISTINCT x)", "DISTINCT count(x)"]),
        (Kind.DISTINCT, "DISTINCT x", ["x"]),
        (Kind.PREDICATE, "sum(x) FILTER (WHERE y)", ["sum(x)"]),
        (Kind.NULL_HANDLING, "COALESCE(x, 0)", ["x"]),
        (Kind.NULL_HANDLING, "x / NULLIF(y, 0)", ["x / y"]),
        (
            Kind.WINDOW,
            "sum(x) OVER (PARTITION BY y ORDER BY z)",
            ["sum(x) OVER (ORDER BY z)", "sum(x) OVER (PARTITION BY y)"],
        ),
        (Kind.WINDOW, "sum(x) OVER (ROWS 1 PRECEDING)", ["sum(x) OVER ()"]),
        (
            Kind.WINDOW,
            "rank() OVER (ORDER BY z)",
            ["dense_rank() OVER (ORDER BY z)", "row_number() OVER (ORDER BY z)", "rank() OVER ()"],
        ),
        (Kind.DATE_UNIT, "date_trunc('year', x)", ["date_trunc('month', x)", "date_trunc('quarter', x)"]),
        (Kind.DATE_UNIT, "extract(year FROM x)", ["extract(month FROM x)"]),
        (Kind.CAST, "x::float / y", ["x / y"]),
        (Kind.CASE, "CASE WHEN x THEN a WHEN y THEN b END", ["CASE WHEN y THEN b END", "CASE WHEN x THEN a END"]),
        (Kind.CASE, "CASE WHEN x THEN a ELSE b END", ["CASE WHEN x THEN a END"]),
        (Kind.FUNCTION, "lower(x)", ["x"]),
        (Kind.LIMIT, "x FROM a LIMIT 2 --", ["x FROM a LIMIT 1", "x FROM a LIMIT 3", "x FROM a"]),
    ],
)
def test_edits_of_expressions(kind: Kind, gold: str, expected: list[str]) -> None:
    found = {normalise(sql) for sql in mutated(f"SELECT {gold} FROM a", kind)}
    assert found == {normalise(f"SELECT {sql} FROM a" if "FROM a" not in sql else f"SELECT {sql}") for sql in expected}


@pytest.mark.parametrize(
    "kind, gold, expected",
    [
        (Kind.JOIN_COLUMN, f"{BOOK} author_id = a.id", [f"{BOOK} sold = a.id"]),
        (Kind.COUNT, "SELECT count(*) FROM author", ["SELECT count(name) FROM author"]),
        (Kind.COLUMN, "SELECT name FROM author", ["SELECT city FROM author"]),
        (Kind.SORT, f"{ORDERED} DESC", [ORDERED + " ASC", ORDERED + " DESC NULLS LAST", "SELECT x FROM a"]),
        (Kind.GROUPING, "SELECT 1 FROM a GROUP BY x, y", ["SELECT 1 FROM a GROUP BY x", "SELECT 1 FROM a GROUP BY y"]),
        (Kind.HAVING, "SELECT x FROM a GROUP BY x HAVING count(*) > 1", ["SELECT x FROM a GROUP BY x"]),
        (
            Kind.SET_OPERATION,
            "SELECT x UNION SELECT y",
            ["SELECT x UNION ALL SELECT y", "SELECT x INTERSECT SELECT y", "SELECT x EXCEPT SELECT y"],
        ),
    ],
)
def test_edits_of_clauses(kind: Kind, gold: str, expected: list[str]) -> None:
    assert {normalise(sql) for sql in mutated(gold, kind)} >= {normalise(sql) for sql in expected}


GOLDS = [
    "SELECT a.name, sum(b.price * b.sold) FROM author a JOIN book b ON b.author_id = a.id "
    "WHERE a.born >= '1990-01-01' AND b.price > 1.5 GROUP BY a.name HAVING count(*) > 1 ORDER BY 2 DESC LIMIT 3",
    "WITH t AS (SELECT author_id, count(*) AS n FROM book GROUP BY 1) SELECT name FROM author LEFT JOIN t "
    "ON t.author_id = author.id WHERE COALESCE(n, 0) = 0 OR name ILIKE '%a%'",
    "SELECT id FROM author WHERE id NOT IN (SELECT author_id FROM book WHERE sold BETWEEN 1 AND 5) "
    "UNION SELECT id FROM book WHERE price IS NOT NULL",
    "SELECT name, rank() OVER (PARTITION BY city ORDER BY born DESC) FROM author",
]


@given(st.sampled_from(GOLDS), st.integers(0, 50), st.integers(1, 100))
@settings(max_examples=40, deadline=None)
def test_mutants_are_other_statements_than_the_gold_and_each_other(gold: str, seed: int, at_most: int) -> None:
    found = mutants(gold, FACTS, at_most, Random(seed))
    texts = [normalise(mutant.sql) for mutant in found]
    assert len(set(texts)) == len(texts) == min(at_most, len(mutants(gold, FACTS, 1000, Random(seed))))
    assert normalise(gold) not in texts
    assert found == mutants(gold, FACTS, at_most, Random(seed))


def test_a_sample_is_even_by_kind() -> None:
    everything = {mutant.kind for mutant in mutants(GOLDS[0], FACTS, 1000, Random(1))}
    sample = [mutant.kind for mutant in mutants(GOLDS[0], FACTS, len(everything), Random(1))]
    assert len(sample) == len(set(sample)) == len(everything)


def test_positions_and_the_gold_itself_are_left_alone() -> None:
    assert mutated("SELECT name FROM author ORDER BY 1 LIMIT 2", Kind.LITERAL) == set()
    assert mutated("SELECT city, count(*) FROM author GROUP BY 1", Kind.LITERAL) == set()
    gold = GOLDS[1]
    mutants(gold, FACTS, 1000, Random(1))
    assert gold == GOLDS[1]


def test_a_study_finds_constants_links_and_tables() -> None:
    study = study_gold(
        "SELECT 1 FROM author a JOIN book b ON b.author_id = a.id WHERE lower(a.name) LIKE 'a%' AND b.sold IN (1, 2) "
        "AND extract(year FROM a.born) = 2020 AND a.born > current_date - 7 AND price * 100 > 5",
        FACTS,
        10,
        Random(1),
    )
    found = {(c.table, c.column, c.expression, c.pattern, c.year, c.follows_clock) for c in study.constants}
    assert found == {
        ("author", "name", "'a%'", True, False, False),
        ("book", "sold", "1", False, False, False),
        ("book", "sold", "2", False, False, False),
        ("author", "born", "2020", False, True, False),
        ("author", "born", "current_date - 7", False, False, True),
        ("book", "price", "5", False, False, False),
    }
    assert study.links == [(("book", "author_id"), ("author", "id"))]
    assert study.tables == ["author", "book"]
    assert study_gold("SELEC", FACTS, 10, Random(1)).error is not None
    assert study_gold("DELETE FROM a", FACTS, 10, Random(1)).error == "is not exactly one SELECT"


def test_a_seed_tells_which_columns_it_fills_and_which_follow_the_clock() -> None:
    seed = study_seed(
        "INSERT INTO author (id, born) VALUES (1, '2020-01-01'), (2, CURRENT_DATE - 3);"
        "INSERT INTO book VALUES (1, 1, 2.5, 3); INSERT INTO other VALUES (now());",
        {table: [column.name for column in columns] for table, columns in FACTS.items()},
    )
    assert seed.written == {"author": ["id", "born"]}
    assert seed.clock == [("author", "born")]


def test_every_mutant_parses() -> None:
    for gold in GOLDS:
        for mutant in mutants(gold, FACTS, 1000, Random(3)):
            assert len(postgast.parse(mutant.sql).stmts) == 1
