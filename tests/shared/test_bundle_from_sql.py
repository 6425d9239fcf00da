import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bundle_from_sql import notes_skeleton, split_sql, undescribed_columns, write_bundle
from shared.contracts.rollout import Regime
from shared.domain import BundleError, load_bundle, system_prompt
from shared.sql_dump import plain_sql

SMALL = """\
SET client_encoding = 'UTF8';
-- people who buy
CREATE TABLE public.buyer (
  id int PRIMARY KEY, -- a number; semicolons; do not split
  note text  -- NULL = nothing to say
);

-- two rows
INSERT INTO public.buyer (id, note) VALUES (1, 'a;b -- c'), (2, 'public.x'); -- done
"""

DUMP = r"""--
-- PostgreSQL database dump
--

\restrict abc

SET search_path = '';
SELECT pg_catalog.set_config('search_path', '', false);

--
-- Name: child; Type: TABLE; Schema: public; Owner: me
--

CREATE TABLE public.child (
    id integer NOT NULL,
    parent integer
);

ALTER TABLE public.child OWNER TO me;

CREATE TABLE public.parent (
    id integer NOT NULL,
    name text
);

--
-- Data for Name: child; Type: TABLE DATA; Schema: public; Owner: me
--

COPY public.child (id, parent) FROM stdin;
1	7
2	\N
\.

COPY public.parent (id, name) FROM stdin;
7	it's a\ttab; and \\N
\.

ALTER TABLE ONLY public.parent
    ADD CONSTRAINT parent_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.child
    ADD CONSTRAINT child_fkey FOREIGN KEY (parent) REFERENCES public.parent(id);

GRANT SELECT ON TABLE public.child TO me;

\unrestrict abc
"""


def test_create_goes_to_the_schema_and_insert_to_the_seed_with_their_comments() -> None:
    parts = split_sql(SMALL)
    assert parts.schema_sql == (
        "-- people who buy\nCREATE TABLE buyer (\n  id int PRIMARY KEY, -- a number; semicolons; do not split\n"
        "  note text  -- NULL = nothing to say\n);\n"
    )
    assert parts.seed_sql == (
        "-- two rows\nINSERT INTO buyer (id, note) VALUES (1, 'a;b -- c'), (2, 'public.x'); -- done\n"
    )
    assert parts.dropped == ("line 1: SET client_encoding = 'UTF8';",)


def test_copy_blocks_become_inserts_in_the_order_of_the_foreign_keys() -> None:
    parts = split_sql(DUMP)
    assert parts.seed_sql == (
        "INSERT INTO parent (id, name) OVERRIDING SYSTEM VALUE VALUES\n(E'7', E'it''s a\\ttab; and \\\\N')\n;\n\n"
        "INSERT INTO child (id, parent) OVERRIDING SYSTEM VALUE VALUES\n('1', '7'),\n('2', NULL)\n;\n"
    ).replace("(E'7'", "('7'")


def test_dump_keeps_keys_and_drops_owners_grants_and_its_own_comments() -> None:
    parts = split_sql(DUMP)
    assert "ADD CONSTRAINT child_fkey FOREIGN KEY (parent) REFERENCES parent(id);" in parts.schema_sql
    assert "--" not in parts.schema_sql + parts.seed_sql
    assert "OWNER" not in parts.schema_sql
    assert [what.split(": ")[1] for what in parts.dropped] == [
        "SET search_path = '';",
        "SELECT pg_catalog.set_config('search_path', '', false);",
        "ALTER TABLE child OWNER",
        "GRANT SELECT ON TABLE",
    ]


def test_a_title_above_a_dropped_statement_stays_in_the_schema() -> None:
    parts = split_sql("-- the shop\nDROP TABLE IF EXISTS t;\nCREATE TABLE t (a int);\n")
    assert parts.schema_sql == "-- the shop\nCREATE TABLE t (a int);\n"


def test_a_file_in_order_keeps_its_order() -> None:
    text = "CREATE TABLE b (id int PRIMARY KEY);\nCREATE TABLE a (b int REFERENCES b);\n"
    text += "INSERT INTO b VALUES (1);\nINSERT INTO a VALUES (1);\nINSERT INTO b VALUES (2);\n"
    assert split_sql(text).seed_sql.split("\n\n") == [
        "INSERT INTO b VALUES (1);",
        "INSERT INTO a VALUES (1);",
        "INSERT INTO b VALUES (2);\n",
    ]


def test_bodies_with_semicolons_stay_whole() -> None:
    body = "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$ SELECT 1; SELECT 2; $$;"
    assert split_sql(f"CREATE TABLE t (a int);\n{body}").schema_sql == f"CREATE TABLE t (a int);\n\n{body}\n"


def test_a_file_without_last_semicolon_or_with_windows_line_ends_is_read() -> None:
    parts = split_sql("CREATE TABLE t (a int);\r\nINSERT INTO t VALUES (1)\r\n")
    assert parts.schema_sql == "CREATE TABLE t (a int);\n"
    assert parts.seed_sql == "INSERT INTO t VALUES (1);\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE é (a int);\nSELECT 'ü' form x y;\n", "line 2: syntax error"),
        ("CREATE TABLE t (a int);\n\nINSERT INTO t VALUES ('x);\n", "line 3: unterminated quoted string"),
        ("CREATE TABLE t (a int);\nCOPY t (a) FROM stdin;\n1\n", "line 2: this COPY block has no closing line"),
        ("CREATE TABLE t (a int);\nCOPY t (a) FROM stdin;\n1\t2\n\\.\n", "line 3: 2 values .* 1 columns"),
        ("CREATE TABLE t (a int);\nCOPY t FROM stdin WITH (FORMAT csv);\n1\n\\.\n", "line 2: COPY with options"),
        ("COPY t (a) FROM stdin;\n1\n\\.\nCREATE TABEL t (a int);\n", "line 4: syntax error"),
        (
            "CREATE TABLE t (a int);\n-- why\nCREATE TABLE u AS SELECT 1;\n",
            "line 3: a bundle cannot keep `CREATE TABLE u AS",
        ),
        ("CREATE TABLE t (a int);\nCOPY t FROM '/etc/passwd';\n", "line 2: a bundle cannot keep `COPY t FROM"),
        ("CREATE TABLE t (a int);\n\\i other.sql\n", "line 2: syntax error"),
        ("SELECT 1;\n", "creates no table"),
        ("", "creates no table"),
    ],
)
def test_a_faulty_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        split_sql(text)


@given(st.lists(st.sampled_from(["SET a = 1;", "", "-- x", "COPY t (a) FROM stdin;\n1\n2\n\\.", "SELECT 'COPY';"])))
def test_plain_sql_keeps_every_line_where_it_was(blocks: list[str]) -> None:
    text = "\n".join([*blocks, "marker"])
    assert plain_sql(text).split("\n").index("marker") == text.split("\n").index("marker")


def test_a_string_that_only_looks_like_copy_is_left_alone() -> None:
    text = "INSERT INTO t VALUES ('\nCOPY is a word\n\\n stays');"
    assert plain_sql(text) == text


def test_bundle_folder_has_all_files_and_loads(tmp_path: Path) -> None:
    write_bundle("small", SMALL, tmp_path / "made" / "small")
    bundle = load_bundle(tmp_path / "made" / "small")
    assert tomllib.loads((tmp_path / "made" / "small" / "domain.toml").read_text())["name"] == "small"
    assert bundle.schema_sql == split_sql(SMALL).schema_sql
    assert bundle.seed_sql == split_sql(SMALL).seed_sql
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["small"]


def test_an_existing_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    with pytest.raises(BundleError, match="exists and was left as it is"):
        write_bundle("small", SMALL, tmp_path / "small")
    assert list((tmp_path / "small").iterdir()) == []


@pytest.mark.parametrize(("name", "text"), [("ok", "CREATE TABEL t;"), ("no/slash", SMALL), ("", SMALL)])
def test_nothing_is_written_when_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(BundleError):
        write_bundle(name, text, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_notes_skeleton_lists_what_a_person_has_to_say_and_no_prompt_shows_it(tmp_path: Path) -> None:
    schema = "CREATE TABLE t (\n  id serial PRIMARY KEY,\n  a int, -- NULL = none\n  b int,\n  c int NOT NULL\n);"
    assert undescribed_columns(schema) == {"t": ["b"]}
    assert undescribed_columns(schema, "- t.b: unknown") == {}
    assert "\n- t: b\n" in notes_skeleton(schema)
    write_bundle("t", schema, tmp_path / "t")
    with (tmp_path / "t" / "notes.md").open("a") as notes:
        notes.write("- Sum: a + b\n")
    prompt = system_prompt(load_bundle(tmp_path / "t"), Regime(prompt="full"))
    assert prompt.endswith("# Notes\n- Sum: a + b")
    assert "<!--" not in prompt


def test_columns_of_a_primary_key_constraint_are_never_null() -> None:
    assert undescribed_columns("CREATE TABLE t (a int, b int, c int, PRIMARY KEY (a, b));") == {"t": ["c"]}
