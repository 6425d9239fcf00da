"""Candidate seeds: what must hold of every one, and what there must be among them."""

from collections import Counter
from datetime import date

import postgast
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.suites.generation import Material, Mildness, draw_seed
from services.verifier.suites.links import shared_values, with_inferred
from services.verifier.suites.material import seed_material
from services.verifier.suites.rendering import seed_sql
from services.verifier.suites.study import Constant, GoldStudy
from services.verifier.suites.tables import Column, ForeignKey, Kind, Table, parents_first

AUTHOR = Table(
    "author",
    (
        Column("id", Kind.INTEGER, "integer", False),
        Column("name", Kind.TEXT, "text", True),
        Column("born", Kind.DATE, "date", True, from_clock=True),
        Column("rating", Kind.DECIMAL, "numeric(4,2)", True),
    ),
    keys=((0,),),
    rows=(("1", "Ada", "1990-01-31", "4.50"), ("2", "Bo", "1985-05-05", "3.25"), ("3", "Cy", None, None)),
)
BOOK = Table(
    "book",
    (
        Column("id", Kind.INTEGER, "integer", False),
        Column("author_id", Kind.INTEGER, "integer", True),
        Column("title", Kind.TEXT, "text", True),
    ),
    keys=((0,), (1, 2)),
    foreign_keys=(ForeignKey((1,), "author", (0,)),),
    rows=(("1", "1", "Alpha"), ("2", "1", "Beta"), ("3", "2", "Gamma")),
)
TABLES = parents_first([BOOK, AUTHOR])
MATERIAL = Material(TABLES, {("author", "rating"): ["4.49", "4.51"]}, shared_values(TABLES, []))


@given(st.text(min_size=1, max_size=5), st.sampled_from(Mildness))
@settings(max_examples=200, deadline=None)
def test_keys_references_and_not_null_hold_in_every_alternative(key: str, mildness: Mildness) -> None:
    drafts = draw_seed(MATERIAL, key, dict.fromkeys(("author", "book"), mildness))
    assert drafts == draw_seed(MATERIAL, key, dict.fromkeys(("author", "book"), mildness))
    authors = {draft[0][0] for draft in drafts["author"]}
    for table in TABLES:
        for key_columns in table.keys:
            keys = Counter(
                part
                for draft in drafts[table.name]
                for part in {tuple(row[index] for index in key_columns) for row in draft}
                if None not in part
            )
            assert not keys or max(keys.values()) == 1
        for draft in drafts[table.name]:
            for row in draft:
                assert len(row) == len(table.columns)
                assert row[0] is not None
                if table is BOOK:
                    assert row[1] is None or row[1] in authors


def test_among_a_few_seeds_there_is_what_tells_queries_apart() -> None:
    seeds = [draw_seed(MATERIAL, f"pool/{number}", {}) for number in range(30)]
    authors = [[draft[0] for draft in seed["author"]] for seed in seeds]
    ratings = {row[3] for rows in authors for row in rows}
    assert {"4.49", "4.51"} <= ratings
    names = {row[1] for rows in authors for row in rows}
    assert None in names
    assert names & {"ADA", "ada", "BO", "bo"}
    assert any(len(rows) > len(AUTHOR.rows) for rows in authors)
    assert any(len(rows) < len(AUTHOR.rows) for rows in authors)
    ties = [Counter(row[3] for row in rows if row[3] is not None) for rows in authors]
    assert any(count and max(count.values()) > 1 for count in ties)
    childless = [
        {row[0] for row in rows} - {draft[0][1] for draft in seed["book"]}
        for rows, seed in zip(authors, seeds, strict=True)
    ]
    assert sum(bool(found) for found in childless) > 10
    assert any(set(AUTHOR.rows) <= set(rows) and len(rows) > len(AUTHOR.rows) for rows in authors)


def test_milder_draws_come_closer_to_the_main_seed() -> None:
    mild = draw_seed(MATERIAL, "x", {"author": Mildness.MILD, "book": Mildness.MILD})
    assert {draft[0][1] for draft in mild["author"]} <= {"Ada", "Bo", "Cy"}
    assert len(mild["author"]) <= 3
    main = draw_seed(MATERIAL, "x", {"author": Mildness.MAIN, "book": Mildness.MAIN})
    assert main == {"author": [(row,) for row in AUTHOR.rows], "book": [(row,) for row in BOOK.rows]}


def test_keys_and_references_are_inferred_where_rows_and_joins_bear_them_out() -> None:
    author = Table("author", AUTHOR.columns, rows=AUTHOR.rows)
    book = Table("book", BOOK.columns, rows=BOOK.rows)
    repeated = Table("visit", (Column("visit_id", Kind.INTEGER, "integer", True),), rows=(("1",), ("1",), ("2",)))
    link = (("book", "author_id"), ("author", "id"))
    tables = {table.name: table for table in with_inferred([author, book, repeated], [link])}
    assert tables["author"].keys == ((0,),)
    assert tables["book"].keys == ((0,),)
    assert tables["book"].foreign_keys == (ForeignKey((1,), "author", (0,), declared=False),)
    assert tables["visit"].keys == ()


def test_boundaries_come_from_the_constants_of_golds() -> None:
    study = GoldStudy(
        constants=[
            Constant("author", "rating", "4.5"),
            Constant("author", "born", "2020", year=True),
            Constant("author", "name", "'%da%'", pattern=True),
            Constant("author", "left_to_default", "1"),
        ]
    )
    values = {"4.5": "4.5", "2020": "2020", "'%da%'": "%da%", "1": "1"}
    rows = {"author": list(AUTHOR.rows), "book": list(BOOK.rows)}
    material = seed_material([AUTHOR, BOOK], rows, [study], values, [("author", "born")])
    assert material.boundaries["author", "rating"] == ["3.5", "4.4", "4.5", "4.6", "5.5"]
    assert {"2019-12-31", "2020-01-01", "2020-12-31", "2021-01-01"} <= set(material.boundaries["author", "born"])
    assert {"da", "DA", "a da", "da a"} <= set(material.boundaries["author", "name"])
    assert ("author", "left_to_default") not in material.boundaries


def test_rendered_sql_is_plain_and_follows_the_clock_where_the_main_seed_does() -> None:
    rows = [("1", "O'Hara \\ \n", "2024-02-29", "-4.50"), ("2", None, "1990-01-31", None)]
    text = seed_sql([AUTHOR, BOOK], {"author": rows, "book": []}, "two\nlines", date(2024, 3, 7))
    assert text == (
        "-- two\n-- lines\n\n"
        "INSERT INTO author (id, name, born, rating) OVERRIDING SYSTEM VALUE VALUES\n"
        "(1, E'O''Hara \\\\ \\n', CURRENT_DATE - 7, -4.50),\n"
        "(2, NULL, '1990-01-31', NULL);\n"
    )
    assert len(postgast.parse(text).stmts) == 1
