"""Bundles made from SQL files of others, and from a real `pg_dump`, in a real PostgreSQL 18."""

import os
import subprocess
from pathlib import Path

import psycopg
import pytest

from shared.bundles.from_sql import write_bundle
from shared.domain import load_bundle, table_names
from shared.embedded_postgres import program
from tests.domains.conftest import emptied

DATA = Path(__file__).parents[2].parent / "shared" / "data"
DEFOG = ["academic", "broker", "car_dealership", "derm_treatment", "geography", "scholar"]


def given_text(name: str) -> str:
    """A given SQL file; the test is skipped where the folder is absent."""
    if not DATA.exists():
        pytest.skip(f"{DATA} is absent: it holds the given databases")
    if name == "shop-recipe":
        return "".join((DATA / name / part).read_text() for part in ("schema.sql", "seed.sql"))
    return (DATA / "defog" / name / f"{name}.sql").read_text()


def contents(connection: psycopg.Connection) -> dict[str, list[str]]:
    """All rows of all tables as sorted text."""
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    return {
        table: sorted(str(row[0]) for row in connection.execute(f'SELECT t::text FROM "{table}" t').fetchall())
        for (table,) in tables
    }


@pytest.mark.parametrize("name", [*DEFOG, "shop-recipe"])
def test_given_database_is_the_same_through_a_bundle(name: str, database: psycopg.Connection, tmp_path: Path) -> None:
    text = given_text(name)
    write_bundle(name, text, tmp_path / name)
    bundle = load_bundle(tmp_path / name)
    with database.transaction():  # one transaction: now() is the same in both
        database.execute(text.replace("BEGIN;", "").replace("COMMIT;", ""))
        original = contents(database)
        emptied(database).execute(bundle.schema_sql)
        assert contents(database) == {table: [] for table in original}
        database.execute(bundle.seed_sql)
        assert contents(database) == original
    assert sorted(table.lower() for table in table_names(bundle)) == sorted(original)
    assert sum(map(len, original.values())) > 0


AWKWARD = r"""
CREATE TYPE mood AS ENUM ('ok', 'so so');
CREATE TABLE "Ärger" (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "order" text, data bytea, tags text[], j jsonb);
CREATE TABLE aa_child (id serial PRIMARY KEY, boss int REFERENCES aa_child, of int REFERENCES "Ärger", m mood, d date);
CREATE TABLE zz_empty (twice int GENERATED ALWAYS AS (one * 2) STORED, one int);
COMMENT ON TABLE aa_child IS 'children; all of them';
CREATE VIEW seen AS SELECT id FROM aa_child;
INSERT INTO "Ärger" ("order", data, tags, j) VALUES
  (E'tab\t line\n back\\slash ''quote'' \r', '\x00ff5c', '{a,"b, c",NULL}', '{"a": "x\ny"}'),
  ('\N', NULL, '{}', 'null'), ('', '', NULL, NULL), ('COPY x FROM stdin;', NULL, NULL, NULL), ('\.', NULL, NULL, NULL);
INSERT INTO aa_child VALUES (1, NULL, 1, 'ok', '2024-02-29'), (2, 1, 5, 'so so', NULL);
SELECT setval('aa_child_id_seq', 6);
UPDATE aa_child SET boss = 2 WHERE id = 1;
INSERT INTO zz_empty (one) VALUES (21);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE event (id positive, at date NOT NULL) PARTITION BY RANGE (at);
CREATE TABLE event_2024 PARTITION OF event FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
INSERT INTO event VALUES (1, '2024-05-05'), (2, '2024-06-06');
CREATE TABLE ring_a (id int PRIMARY KEY, b int NOT NULL);
CREATE TABLE ring_b (id int PRIMARY KEY, a int NOT NULL REFERENCES ring_a);
INSERT INTO ring_a VALUES (1, 2), (2, 2);
INSERT INTO ring_b VALUES (2, 1);
ALTER TABLE ring_a ADD FOREIGN KEY (b) REFERENCES ring_b;
CREATE MATERIALIZED VIEW counted AS SELECT count(*) FROM event;
CREATE FUNCTION doubled(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2 * $1';
CREATE VIEW twice AS SELECT doubled(id) FROM ring_a;
"""


@pytest.mark.parametrize("options", [[], ["--inserts", "--rows-per-insert=100"]])
def test_pg_dump_comes_back_as_it_was(database: psycopg.Connection, tmp_path: Path, options: list[str]) -> None:
    database.execute(AWKWARD)
    original, info = contents(database), database.info
    target = [f"--host={info.host}", f"--port={info.port}", f"--username={info.user}", f"--dbname={info.dbname}"]
    dump = subprocess.run(
        [str(program("pg_dump")), *target, *options],
        env=os.environ | {"PGPASSWORD": info.password},
        capture_output=True,
        check=True,
    ).stdout.decode()  # not text=True: it would change the carriage return in a string
    assert ("COPY public" in dump) is (options == [])
    parts = write_bundle("dump", dump, tmp_path / "dump")
    with emptied(database).transaction():
        database.execute(parts.schema_sql)
        database.execute(parts.seed_sql)
    assert contents(database) == original
    assert database.execute("SELECT count(*) FROM seen").fetchone() == (2,)
    assert database.execute("SELECT nextval('aa_child_id_seq')").fetchone() == (7,)
    assert database.execute("SELECT * FROM counted").fetchone() == (2,)
    assert database.execute("SELECT sum(doubled) FROM twice").fetchone() == (6,)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        database.execute("INSERT INTO aa_child VALUES (9, 77, 1, 'ok', NULL)")
    assert "COMMENT ON TABLE aa_child IS 'children; all of them';" in parts.schema_sql
    assert "Owner" not in parts.schema_sql
