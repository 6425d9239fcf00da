"""Bundles from a live database: a real PostgreSQL 18 with keys of every kind, and the `sqlclimb` command."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from cli.stack.home import HOME_VARIABLE
from shared.bundles import live_connection
from shared.bundles.from_dsn import Made, Wanted, bundle_from_database
from shared.bundles.live_connection import given_dsn, open_snapshot
from shared.bundles.live_sample import Bounds
from shared.domain import Bundle, BundleError, load_bundle, table_names

SCHEMA = """
CREATE SCHEMA sales;
CREATE TYPE mood AS ENUM ('ok', 'so so');
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TABLE country (code char(2) PRIMARY KEY, name text NOT NULL);
CREATE TABLE customer (
  id serial PRIMARY KEY, full_name text NOT NULL, email text NOT NULL UNIQUE, phone text, born date,
  country char(2) NOT NULL REFERENCES country, referrer int REFERENCES customer, profile jsonb, tags text[],
  feeling mood, last_order int
);
CREATE TABLE login (email text PRIMARY KEY REFERENCES customer (email), seen_from inet);
CREATE TABLE sales."Order" (
  "orderId" int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "customerId" int NOT NULL REFERENCES customer,
  "select" positive NOT NULL, total numeric(12,2) NOT NULL, tax numeric GENERATED ALWAYS AS (total * 0.2) STORED
);
CREATE INDEX ON sales."Order" ("customerId");
ALTER TABLE customer ADD FOREIGN KEY (last_order) REFERENCES sales."Order";
CREATE TABLE line (
  order_id int NOT NULL REFERENCES sales."Order", number int NOT NULL, is_gift boolean, PRIMARY KEY (order_id, number)
);
CREATE TABLE shipment (order_id int, line int, FOREIGN KEY (order_id, line) REFERENCES line (order_id, number));
CREATE TABLE event (id int NOT NULL, at date NOT NULL, customer int NOT NULL REFERENCES customer)
  PARTITION BY RANGE (at);
CREATE TABLE event_2023 PARTITION OF event FOR VALUES FROM ('2023-01-01') TO ('2024-01-01');
CREATE TABLE chain (id int PRIMARY KEY, previous int REFERENCES chain, "share of %s" int);
CREATE TABLE strict_chain (id int PRIMARY KEY, previous int NOT NULL REFERENCES strict_chain);
CREATE VIEW big AS SELECT "orderId" FROM sales."Order" WHERE total > 5;
CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS orders FROM sales."Order";
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER touched BEFORE UPDATE ON customer FOR EACH ROW EXECUTE FUNCTION touch();
COMMENT ON COLUMN customer.referrer IS 'who brought the customer; NULL = nobody';
INSERT INTO country SELECT chr(65 + n) || 'X', 'Country ' || n FROM generate_series(0, 9) n;
INSERT INTO customer (full_name, email, phone, born, country, referrer, profile, tags, feeling)
SELECT 'Secretname ' || (ARRAY['Ann', 'Bo'])[1 + n % 2], 'u' || n || '@secretmail.example', '+49 170 ' || 100000 + n,
  date '1990-01-01' + n, chr(65 + n % 10) || 'X', nullif(n / 3, 0),
  jsonb_build_object('email', 'u' || n || '@secretmail.example', 'size', n), ARRAY['it''s', 'a,b'], 'so so'
FROM generate_series(1, 3000) n;
INSERT INTO login SELECT email, '192.0.2.7' FROM customer WHERE id % 2 = 0;
INSERT INTO sales."Order" ("customerId", "select", total)
SELECT 1 + n % 3000, 1 + n % 9, n FROM generate_series(1, 6000) n;
UPDATE customer SET last_order = id;
INSERT INTO line SELECT 1 + n / 3, n % 3, n % 2 = 0 FROM generate_series(0, 17999) n;
INSERT INTO shipment SELECT 1 + n, n % 3 FROM generate_series(0, 500) n UNION ALL SELECT NULL, NULL;
INSERT INTO event SELECT n, date '2023-01-01' + n % 365, 1 + n FROM generate_series(1, 2000) n;
INSERT INTO chain SELECT n, nullif(n - 1, 0), n FROM generate_series(1, 500) n;
INSERT INTO strict_chain SELECT n, greatest(n - 1, 1) FROM generate_series(1, 500) n;
ANALYZE;
"""
BOUNDS = Bounds(rows_per_table=60, total_rows=600, seed=1)
PERSONAL = {"customer.full_name", "customer.email", "customer.phone", "customer.born", "customer.profile"} | {
    "login.email",
    "login.seen_from",
}


@pytest.fixture(scope="module")
def dsn(control_cluster: str) -> Iterator[str]:
    """A database of somebody."""
    with psycopg.connect(control_cluster, autocommit=True) as admin:
        admin.execute("CREATE DATABASE live TEMPLATE template0")
        admin.execute("CREATE DATABASE reloaded TEMPLATE template0")
    found = control_cluster.rsplit("/", 1)[0] + "/live"
    with psycopg.connect(found, autocommit=True) as connection:
        connection.execute(SCHEMA.encode())
    yield found
    with psycopg.connect(control_cluster, autocommit=True) as admin:
        admin.execute("DROP DATABASE live")
        admin.execute("DROP DATABASE reloaded")


@pytest.fixture(scope="module")
def made(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, Path]:
    """A bundle of it."""
    folder = tmp_path_factory.mktemp("live") / "bundle"
    return bundle_from_database("live", dsn, Wanted(BOUNDS), folder), folder


@contextlib.contextmanager
def reloaded(bundle: Bundle, dsn: str) -> Iterator[psycopg.Connection]:
    """The bundle in a database of its own, gone afterwards."""
    with psycopg.connect(dsn.rsplit("/", 1)[0] + "/reloaded") as connection:
        connection.execute(bundle.schema_sql.encode())
        connection.execute(bundle.seed_sql.encode())
        yield connection
        connection.rollback()


def rows(connection: psycopg.Connection, query: str) -> list[tuple[object, ...]]:
    """All rows of a query."""
    return list(connection.execute(query.encode()).fetchall())


def test_the_bundle_loads_with_every_table_in_its_bounds_and_every_reference_kept(
    made: tuple[Made, Path], dsn: str
) -> None:
    bundle = load_bundle(made[1])
    assert (
        set(table_names(bundle))
        == set(made[0].rows)
        == {"country", "customer", "login", "sales.Order", "line"} | {*("shipment", "event", "chain", "strict_chain")}
    )
    assert all(count <= BOUNDS.rows_per_table for count in made[0].rows.values()), made[0].rows
    assert [table for table, count in made[0].rows.items() if not count] == ["strict_chain"]
    assert "strict_chain: none of its rows fits the bounds." in made[0].notes
    assert sum(made[0].rows.values()) <= BOUNDS.total_rows
    with reloaded(bundle, dsn) as connection:
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # raises where a reference leads nowhere
        assert rows(connection, 'SELECT count(*) FROM sales."Order" WHERE tax = total * 0.2') == [
            (made[0].rows["sales.Order"],)
        ]
        assert rows(connection, "SELECT orders FROM counted") == [(made[0].rows["sales.Order"],)]
        lines = rows(
            connection, 'SELECT count(*) FROM line JOIN sales."Order" ON order_id = "orderId" GROUP BY order_id'
        )
        assert rows(connection, 'SELECT count(*) FROM chain WHERE "share of %s" IS DISTINCT FROM id') == [(0,)]
        assert max(count for (count,) in lines) == 3, "rows that refer to one row come together"  # type: ignore[type-var]


def test_personal_columns_are_masked_in_form_distinct_and_joinable(made: tuple[Made, Path], dsn: str) -> None:
    assert {found.column for found in made[0].masked} == PERSONAL
    text = "".join(path.read_text() for path in made[1].glob("*.*"))
    assert not any(word in text for word in ("Secretname", "secretmail", "+49 170 1", "192.0.2.7"))
    bundle = load_bundle(made[1])
    assert set(bundle.settings.masked_columns) == PERSONAL
    assert "customer.email: e-mail address" in (made[1] / "README.md").read_text()
    with reloaded(bundle, dsn) as connection:
        found = rows(
            connection, "SELECT email, full_name, phone, born, profile->>'email', profile->>'size' FROM customer"
        )
    assert len({email for email, *_ in found}) == len(found)
    for email, name, phone, born, in_profile, size in found:
        assert str(email).endswith(".test")
        assert in_profile == email, "one value is masked alike wherever it stands"
        assert len(str(name)) in (13, 14)
        assert str(phone).startswith("+")
        assert "1989-07" <= str(born) < "1999-01"
        assert str(size).isdigit()
    assert len({str(name).split()[0] for _, name, *_ in found}) == 1, "one word is one word everywhere"


def test_an_allowed_column_stays_with_those_that_refer_to_it(dsn: str, tmp_path: Path) -> None:
    made = bundle_from_database("live", dsn, Wanted(BOUNDS, allowed=["customer.email"]), tmp_path / "b")
    assert {found.column for found in made.allowed} == {"customer.email", "login.email"}
    assert "secretmail" in (tmp_path / "b" / "seed.sql").read_text()
    assert load_bundle(tmp_path / "b").settings.reviewed_columns == ["customer.email", "login.email"]


def test_the_same_seed_takes_the_same_rows_and_another_others(dsn: str, tmp_path: Path) -> None:
    def chosen(name: str, seed: int) -> Bundle:
        bounds = replace(BOUNDS, seed=seed)
        allowed = sorted(PERSONAL)
        bundle_from_database("live", dsn, Wanted(bounds, allowed=allowed), tmp_path / name)
        return load_bundle(tmp_path / name)

    first = chosen("a", 1)
    assert first.seed_sql == chosen("b", 1).seed_sql
    assert first.seed_sql != chosen("c", 2).seed_sql


def test_tables_and_schemas_can_be_left_out(dsn: str, tmp_path: Path) -> None:
    made = bundle_from_database("live", dsn, Wanted(BOUNDS, excluded=["line", "login"]), tmp_path / "a")
    assert not {"line", "login"} & set(made.rows)
    schema = (tmp_path / "a" / "schema.sql").read_text()
    assert "CREATE TABLE line" not in schema
    assert "REFERENCES line" not in schema
    made = bundle_from_database("live", dsn, Wanted(BOUNDS, schemas=["sales"]), tmp_path / "b")
    assert set(made.rows) == {"sales.Order"}


def test_tables_that_may_not_be_read_are_left_out_and_said(dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("CREATE ROLE reader LOGIN PASSWORD 'r3ader'")
        owner.execute("GRANT USAGE ON SCHEMA sales TO reader")
        owner.execute('GRANT SELECT ON country, customer, sales."Order", chain TO reader')
    try:
        own = dsn.replace(dsn.split("//")[1].split("@")[0], "reader:r3ader")
        made = bundle_from_database("live", own, Wanted(BOUNDS), tmp_path / "b")
    finally:
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute("DROP OWNED BY reader; DROP ROLE reader")
    assert set(made.rows) == {"country", "customer", "sales.Order", "chain"}
    assert "login: no right to read it; it is not in the bundle." in made.notes
    with reloaded(load_bundle(tmp_path / "b"), dsn) as connection:
        assert rows(connection, "SELECT count(*) FROM country") == [(made.rows["country"],)]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(BOUNDS, excluded=["nosuch"]), "--exclude: there is no table nosuch"),
        (Wanted(BOUNDS, allowed=["customer.nosuch"]), "--allow: there is no column customer.nosuch"),
        (Wanted(BOUNDS, schemas=["nosuch"]), "no table may be read"),
    ],
)
def test_an_option_that_names_nothing_is_refused(wanted: Wanted, message: str, dsn: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=message):
        bundle_from_database("live", dsn, wanted, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_no_error_shows_the_password(dsn: str, tmp_path: Path) -> None:
    password = dsn.split(":")[2].split("@")[0]
    wrong = [dsn.replace("sqlclimb:", "nobody:"), f"postgresql://u:{password}@[bad", dsn.replace("/live", "/nosuch")]
    wrong += [f"postgresql://u:a{mark}{password}@localhost:1/x" for mark in "@/:?#"]  # not escaped
    for text in wrong:
        with pytest.raises(BundleError) as caught:
            bundle_from_database("live", text, Wanted(BOUNDS), tmp_path / "bundle")
        assert password not in str(caught.value)
        assert caught.value.__cause__ is None
    with pytest.raises(BundleError, match="env:NO_SUCH_DSN: the environment has no such variable"):
        given_dsn("env:NO_SUCH_DSN")
    with pytest.raises(BundleError) as caught:
        given_dsn(f"env:{dsn}")
    assert password not in str(caught.value)
    with open_snapshot(dsn) as live:
        assert password in live.secrets
        assert password not in repr(live)


def test_a_server_that_knows_no_such_setting_and_a_dump_that_takes_too_long_are_said(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(live_connection, "DUMP_SECONDS", 0.001)
        with pytest.raises(BundleError, match="pg_dump took longer"):
            bundle_from_database("live", dsn, Wanted(BOUNDS), tmp_path / "bundle")
    monkeypatch.setitem(live_connection._SESSION, "no_such_setting", "1")
    with pytest.raises(BundleError, match='unrecognized configuration parameter "no_such_setting"'):
        bundle_from_database("live", dsn, Wanted(BOUNDS), tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_the_command_reads_the_string_from_the_environment_and_tells_what_it_masked(dsn: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "cli.main", "domain", "init", "mine", "--from-dsn", "env:MINE", "--rows", "20"]
    own = os.environ | {"MINE": dsn, HOME_VARIABLE: str(tmp_path)}
    done = subprocess.run(argv, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "customer.email: e-mail address, told by its name" in done.stdout
    assert dsn not in done.stdout + done.stderr
    again = subprocess.run(argv, env=own, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "exists and was left as it is" in again.stderr
