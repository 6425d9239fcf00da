"""Acceptance A6 of issue 4: a bundle from a live Postgres with 50 tables and 5 million rows: under 60 s and 500 MB.

    python .ci/from_dsn.py [--rows 5000000] [--keep FOLDER]

Builds the database in an embedded Postgres (keys of several columns, rings, self-references, a wide
table, JSON, arrays, an enum, mixed-case and reserved names, two schemas, partitions, personal columns), runs `sqlclimb
domain init --from-dsn` on it, samples the command's memory with that of its children, and loads the bundle twice over
in a fresh database. Checks that no row refers to a missing one, and that nothing masked is left readable.
"""

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import psycopg

from cli.stack.home import HOME_VARIABLE, free_ports
from shared.domain import load_bundle, table_names

SECONDS, MEGABYTES = 60, 500
PASSWORD = "s3cret-" + secrets.token_hex(8)

SCHEMA = """
CREATE SCHEMA sales;
CREATE TYPE mood AS ENUM ('new', 'happy', 'angry');
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TABLE country (code char(2) PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE customer (
  id bigserial PRIMARY KEY, full_name text NOT NULL, email text NOT NULL UNIQUE, phone text, birth_date date,
  country char(2) NOT NULL REFERENCES country, referrer bigint REFERENCES customer, ip inet, profile jsonb, tags text[],
  feeling mood NOT NULL, note text, favourite bigint
);
CREATE TABLE sales."Order" (
  "orderId" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "customerId" bigint NOT NULL REFERENCES public.customer,
  "select" positive NOT NULL, placed timestamptz NOT NULL, total numeric(12,2) NOT NULL,
  tax numeric GENERATED ALWAYS AS (total * 0.2) STORED
);
CREATE INDEX ON sales."Order" ("customerId");
ALTER TABLE customer ADD FOREIGN KEY (favourite) REFERENCES sales."Order";
CREATE TABLE line (
  order_id bigint NOT NULL REFERENCES sales."Order", number integer NOT NULL, sku integer NOT NULL,
  amount double precision, PRIMARY KEY (order_id, number)
);
CREATE TABLE shipment (
  id bigserial PRIMARY KEY, order_id bigint NOT NULL, line_number integer NOT NULL,
  FOREIGN KEY (order_id, line_number) REFERENCES line (order_id, number)
);
CREATE INDEX ON shipment (order_id, line_number);
CREATE TABLE event (id bigint NOT NULL, at timestamp NOT NULL, customer bigint NOT NULL, body text NOT NULL)
  PARTITION BY RANGE (at);
CREATE TABLE event_2023 PARTITION OF event FOR VALUES FROM ('2023-01-01') TO ('2024-01-01');
CREATE TABLE event_2024 PARTITION OF event FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE chain (id integer PRIMARY KEY, previous integer REFERENCES chain);
CREATE TABLE head_of (id integer PRIMARY KEY, department integer NOT NULL);
CREATE TABLE department (id integer PRIMARY KEY, head integer NOT NULL REFERENCES head_of DEFERRABLE);
ALTER TABLE head_of ADD FOREIGN KEY (department) REFERENCES department DEFERRABLE;
CREATE VIEW big_orders AS SELECT "orderId", total FROM sales."Order" WHERE total > 500;
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER touched BEFORE UPDATE ON customer FOR EACH ROW EXECUTE FUNCTION touch();
COMMENT ON COLUMN customer.referrer IS 'who brought the customer; NULL = nobody';
"""
FILL = """
INSERT INTO country SELECT chr(65 + n / 26) || chr(65 + n % 26), 'Country ' || n FROM generate_series(0, 199) n;
INSERT INTO customer (full_name, email, phone, birth_date, country, referrer, ip, profile, tags, feeling, note)
SELECT 'Secretname' || n || ' Person', 'user' || n || '@secretmail.example', '+49 170 ' || (1000000 + n),
  date '1950-01-01' + n % 20000, chr(65 + n % 200 / 26) || chr(65 + n % 200 % 26), nullif(n / 3, 0),
  '10.0.0.1'::inet + n, jsonb_build_object('email', 'user' || n || '@secretmail.example', 'size', n % 50),
  ARRAY['t' || n % 7, 'x'], (ARRAY['new', 'happy', 'angry'])[1 + n % 3]::mood, repeat('words and words ', n % 40)
FROM generate_series(1, {part} / 5) n;
INSERT INTO sales."Order" ("customerId", "select", placed, total)
SELECT 1 + n % ({part} / 5), 1 + n % 9, timestamptz '2023-01-01' + n * interval '40 s', n % 900 + 0.5
FROM generate_series(1, {part}) n;
UPDATE customer SET favourite = id WHERE id % 10 = 0;
INSERT INTO line SELECT 1 + n / 2, n % 2, n % 500, n * 0.25 FROM generate_series(0, {part} * 2 - 1) n;
INSERT INTO shipment (order_id, line_number) SELECT 1 + n, n % 2 FROM generate_series(0, {part} / 2) n;
INSERT INTO event
SELECT n, timestamp '2023-01-01' + n % 700 * interval '1 day', 1 + n % ({part} / 5), repeat('body ', 20)
FROM generate_series(1, {part}) n;
INSERT INTO chain SELECT n, nullif(n - 1, 0) FROM generate_series(1, {part} / 4) n;
BEGIN; SET CONSTRAINTS ALL DEFERRED;
INSERT INTO head_of SELECT n, n FROM generate_series(1, 1000) n;
INSERT INTO department SELECT n, 1001 - n FROM generate_series(1, 1000) n;
COMMIT;
"""
OTHERS = 41
"""Tables beside those above, so that there are 50 with their partitions not counted."""


def other_table(number: int, rows: int) -> str:
    """One of the plain tables; the first is 60 columns wide."""
    columns = [f"c{n} {('integer', 'text', 'numeric(9,2)', 'date')[n % 4]}" for n in range(60 if number == 0 else 6)]
    kinds = ("n % 97", "'v' || n % 31", "n % 1000 / 4.0", "date '2024-01-01' + n % 365")
    values = [kinds[n % 4] for n in range(len(columns))]
    many = rows // 10 if number == 0 else rows
    return (
        f"CREATE TABLE other_{number} "
        f"(id serial PRIMARY KEY, country char(2) REFERENCES country, {', '.join(columns)});"
        f"INSERT INTO other_{number} (country, {', '.join(c.split()[0] for c in columns)}) SELECT "
        f"chr(65 + n % 200 / 26) || chr(65 + n % 200 % 26), {', '.join(values)} FROM generate_series(1, {many}) n;"
    )


def build(dsn: str, rows: int) -> None:
    """The database: about `rows` rows."""
    part = rows // 10
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(SCHEMA.encode())
        connection.execute(FILL.format(part=part).encode())
        for number in range(OTHERS):
            connection.execute(other_table(number, int(rows * 0.52 / (OTHERS - 1))).encode())
        connection.execute("ANALYZE")
        found = connection.execute("SELECT count(*), sum(n_live_tup) FROM pg_stat_user_tables").fetchone() or (0, 0)
        print(f"database: {found[0]} tables (2 are partitions), {found[1]} rows")


def measured(argv: list[str], environment: dict[str, str]) -> tuple[float, float, str]:
    """(seconds, peak resident MB of the command and its children, output). Exits where it fails."""
    started, peak = time.monotonic(), 0
    child = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watched = psutil.Process(child.pid)
    while child.poll() is None:
        resident = 0
        try:
            family = [watched, *watched.children(recursive=True)]
            resident = sum(process.memory_info().rss for process in family)
            assert not any(PASSWORD in " ".join(process.cmdline()) for process in family), "the password is in an argv"
        except psutil.NoSuchProcess:
            pass
        peak = max(peak, resident)
        time.sleep(0.02)
    output = child.stdout.read() if child.stdout else ""
    if child.returncode != 0:
        raise SystemExit(f"{argv} failed: {output}")
    return time.monotonic() - started, peak / 1e6, output


def check(folder: Path, dsn: str, output: str) -> list[str]:
    """What is wrong with the bundle."""
    bundle = load_bundle(folder)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE loaded")
    with psycopg.connect(dsn.rsplit("/", 1)[0] + "/loaded") as connection:
        connection.execute(bundle.schema_sql.encode())
        connection.execute(bundle.seed_sql.encode())
        connection.commit()
        counts = {}
        for name in table_names(bundle):
            quoted = ".".join(f'"{part}"' for part in name.split("."))
            row = connection.execute(f"SELECT count(*) FROM {quoted}".encode()).fetchone()
            counts[name] = row[0] if row else 0
    text = "".join(path.read_text() for path in folder.rglob("*.*"))
    faults = [f"{name} has no row" for name, count in counts.items() if count == 0]
    faults += [
        f"{word!r} is still readable" for word in ("Secretname", "secretmail", PASSWORD) if word in text + output
    ]
    kilobytes = (folder / "seed.sql").stat().st_size // 1000
    print(f"bundle: {len(counts)} tables, {sum(counts.values())} rows, {kilobytes} KB; loads")
    return faults


def main() -> None:
    """Build, run, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keep", type=Path, help="folder for the bundle")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="from-dsn-", dir="/dev/shm") as scratch:
        port = free_ports(1)[0]
        dsn = f"postgresql://sqlclimb:{PASSWORD}@127.0.0.1:{port}/postgres"
        environment = {"SQLCLIMB_DB": dsn, "SQLCLIMB_CONTROL_DATA": f"{scratch}/data", "PATH": os.environ["PATH"]}
        argv = [sys.executable, "-m", "shared.control_database"]
        with Path(scratch, "log").open("w") as log:
            server = subprocess.Popen(argv, env=environment, stderr=log, start_new_session=True)
        try:
            for _ in range(600):
                try:
                    psycopg.connect(dsn).close()
                    break
                except psycopg.OperationalError:
                    time.sleep(0.1)
            started = time.monotonic()
            build(dsn, options.rows)
            print(f"built in {time.monotonic() - started:.0f} s")
            home = options.keep or Path(scratch, "home")
            command = [sys.executable, "-m", "cli.main", "domain", "init", "live", "--from-dsn", "env:LIVE_DSN"]
            own = os.environ | {"LIVE_DSN": dsn, HOME_VARIABLE: str(home)}
            seconds, megabytes, output = measured(command, own)
            print(output)
            faults = check(home / "domains" / "live", dsn, output)
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(timeout=60)
    print(f"domain init --from-dsn: {seconds:.1f} s (limit {SECONDS}), {megabytes:.0f} MB at peak (limit {MEGABYTES})")
    if seconds > SECONDS or megabytes > MEGABYTES:
        faults.append("too slow or too large")
    print("\n".join(faults) or "all as it should be")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
