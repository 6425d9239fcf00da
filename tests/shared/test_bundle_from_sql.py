import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bundles.from_sql import read_sql_file, split_sql, write_bundle
from shared.bundles.notes import notes_skeleton, undescribed_columns
from shared.bundles.sql_dump import plain_sql
from shared.contracts.rollout import Regime
from shared.domain import BundleError, load_bundle, system_prompt

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
    assert split_sql(f"{body}\nCREATE TABLE t (a int DEFAULT f());").schema_sql == (
        f"SET check_function_bodies = false;\n{body}\n\nCREATE TABLE t (a int DEFAULT f());\n"
    )


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
        ("CREATE TABLE t (a int);\n\\i other.sql\n", r"line 2: psql's \\i cannot be followed"),
        ("CREATE TABLE t (a int);\n\\copy t from 'x'\n", r"line 2: psql's \\copy cannot be followed"),
        ("\\connect a\nCREATE TABLE t (a int);\n\\connect b\n", "line 3: b is a second database"),
        ("CREATE EXTENSION postgis;\nCREATE TABLE t (a int);", "line 1: .*the sandbox has no extension postgis"),
        ("CREATE TABLE t (a int);\nCREATE FOREIGN TABLE f (a int) SERVER s;", "line 2: .*rows lie elsewhere"),
        ("CREATE TEMP TABLE t (a int);", "line 1: .*a temporary table is gone"),
        ("CREATE TABLE t (a int);\nDO $$ BEGIN END $$;", "line 2: a bundle cannot keep `DO"),
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


def test_what_a_read_only_copy_has_no_use_for_is_left_out() -> None:
    idle = [
        *("CREATE ROLE joe LOGIN PASSWORD 'x';", "CREATE DATABASE shop;", "CREATE EXTENSION IF NOT EXISTS pgcrypto;"),
        *("COMMENT ON EXTENSION pgcrypto IS 'x';", "CREATE SCHEMA public;", "COMMENT ON SCHEMA public IS 'x';"),
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;",
        "CREATE FUNCTION unused(int) RETURNS int LANGUAGE sql AS 'SELECT 1';",
        *("CREATE TRIGGER g BEFORE UPDATE ON t EXECUTE FUNCTION f();", "COMMENT ON TRIGGER g ON t IS 'x';"),
        *(
            "CREATE INDEX i ON t (a);",
            "CREATE STATISTICS s ON a, b FROM t;",
            "CREATE RULE r AS ON INSERT TO t DO NOTHING;",
        ),
        *(
            "ALTER TABLE t CLUSTER ON t_pkey;",
            "ALTER TABLE t REPLICA IDENTITY FULL;",
            "ALTER TABLE t ENABLE TRIGGER ALL;",
        ),
        *(
            "CREATE POLICY p ON t;",
            "CREATE PUBLICATION p FOR ALL TABLES;",
            "SELECT pg_catalog.set_config('a', 'b', false);",
        ),
        *("SECURITY LABEL ON TABLE t IS 'x';", "CREATE VIEW w AS SELECT a FROM elsewhere;"),
        "ALTER TABLE ONLY t ADD CONSTRAINT k FOREIGN KEY (a) REFERENCES elsewhere(a);",
    ]
    kept = [
        *("CREATE SCHEMA own;", "CREATE EXTENSION IF NOT EXISTS citext;", "CREATE TYPE m AS ENUM ('a');"),
        *("CREATE TABLE t (a int, b int);", "CREATE UNIQUE INDEX u ON t (a);", "CREATE VIEW v AS SELECT a FROM t;"),
    ]
    parts = split_sql("\n".join([*kept, *idle]))
    assert parts.schema_sql == "\n\n".join(kept) + "\n"
    assert parts.seed_sql == ""
    assert len(parts.dropped) == len(idle)
    assert "PASSWORD 'x'" not in "".join(parts.dropped)


def test_materialized_views_are_filled_after_the_rows() -> None:
    parts = split_sql(
        "CREATE TABLE t (a int);\nCREATE MATERIALIZED VIEW v AS SELECT a FROM t;\nINSERT INTO t VALUES (1);"
    )
    assert parts.seed_sql == "INSERT INTO t VALUES (1);\n\nREFRESH MATERIALIZED VIEW v;\n"


def test_keys_in_a_ring_are_checked_at_the_end() -> None:
    keys = [("a", "b"), ("b", "a"), ("c", "a")]
    text = "".join(f"CREATE TABLE {name} (id int PRIMARY KEY, other int);\n" for name in "abc")
    text += "INSERT INTO a VALUES (1, 1);\nINSERT INTO b VALUES (1, 1);\nINSERT INTO c VALUES (1, 1);\n"
    text += "".join(f"ALTER TABLE {one} ADD CONSTRAINT k FOREIGN KEY (other) REFERENCES {two};\n" for one, two in keys)
    schema = split_sql(text).schema_sql
    assert schema.count("DEFERRABLE INITIALLY DEFERRED") == 2
    assert "ALTER TABLE c ADD CONSTRAINT k FOREIGN KEY (other) REFERENCES a;" in schema


def test_a_dump_that_is_no_text_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    for data, message in (
        (b"PGDMP\x01", "pg_restore"),
        (b"\x1f\x8b", "unpacking"),
        (b"CREATE\n\xff", "line 2: not UTF-8"),
    ):
        (tmp_path / "dump").write_bytes(data)
        with pytest.raises(BundleError, match=message):
            read_sql_file(tmp_path / "dump")


def test_notes_tell_values_that_repeat_and_ask_for_units() -> None:
    schema = "CREATE TABLE t (id int PRIMARY KEY, state text NOT NULL, price numeric NOT NULL, b int);"
    rows = ", ".join(f"({n}, '{'ab'[n % 2]}', {n}, NULL)" for n in range(9))
    notes = notes_skeleton(schema, f"INSERT INTO t VALUES {rows};")
    shown = notes.split("-->")[1]
    assert shown == "\nValues that occur\n- t.state: a, b.\n"
    assert "- t: price" in notes
    assert notes_skeleton(schema, f"INSERT INTO t VALUES {rows};", frozenset({"t.state"})).endswith("-->\n")


def test_columns_of_types_the_sandbox_lacks_become_text_where_asked() -> None:
    table = "CREATE TABLE t (id int, place public.geometry(Point,4326) NOT NULL, tags vector[] , b vector(3));"
    parts = split_sql(table, lean=True, absent_types=frozenset({"geometry", "vector"}))
    assert parts.schema_sql == "CREATE TABLE t (id int, place text NOT NULL, tags text , b text);\n"
