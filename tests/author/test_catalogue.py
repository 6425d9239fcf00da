"""The catalogue is what the schema's and the seed's text say."""

from decimal import Decimal

from services.author.catalogue import Catalogue, ForeignKey, Kind, read_catalogue

SCHEMA = """
CREATE TABLE shelf (id serial PRIMARY KEY, label varchar(20) UNIQUE, tags text[]);
CREATE TABLE public.book (
  isbn text, shelf integer NOT NULL REFERENCES shelf, price numeric(8,2), printed_on date, sold boolean,
  seen timestamptz, sequel_of text, PRIMARY KEY (isbn)
);
ALTER TABLE ONLY public.book ADD CONSTRAINT sequel FOREIGN KEY (sequel_of) REFERENCES public.book (isbn);
"""
SEED = """
INSERT INTO shelf VALUES (1, 'it''s', NULL), (2, 'b', '{x}');
INSERT INTO book (isbn, shelf, price, printed_on, sold) VALUES ('x', 1, -2.50, date '2024-02-03', true);
INSERT INTO book (isbn, shelf, seen) VALUES ('y', 2, now());
INSERT INTO elsewhere VALUES (1);
"""


def test_types_keys_and_nullability_are_read_wherever_they_are_written() -> None:
    found = read_catalogue(SCHEMA, SEED)
    book = found.tables["book"]
    assert [(column.name, column.kind) for column in book.columns] == [
        ("isbn", Kind.TEXT),
        ("shelf", Kind.INTEGER),
        ("price", Kind.DECIMAL),
        ("printed_on", Kind.DATE),
        ("sold", Kind.BOOLEAN),
        ("seen", Kind.TIMESTAMP),
        ("sequel_of", Kind.TEXT),
    ]
    assert [column.name for column in book.columns if not column.nullable] == ["isbn", "shelf"]
    assert [column.name for column in found.tables["shelf"].columns if column.unique] == ["id", "label"]
    assert found.tables["shelf"].column("tags").kind is Kind.OTHER
    assert found.foreign_keys == (
        ForeignKey("book", "shelf", "shelf", "id"),
        ForeignKey("book", "sequel_of", "book", "isbn"),
    )


def test_rows_hold_literals_and_nulls_and_leave_out_what_is_computed() -> None:
    found = read_catalogue(SCHEMA, SEED)
    assert found.tables["shelf"].rows == (
        {"id": 1, "label": "it's", "tags": None},
        {"id": 2, "label": "b", "tags": "{x}"},
    )
    assert found.tables["book"].rows == (
        {"isbn": "x", "shelf": 1, "price": Decimal("-2.50"), "printed_on": "2024-02-03", "sold": True}
        | dict.fromkeys(("seen", "sequel_of")),
        {"isbn": "y", "shelf": 2} | dict.fromkeys(("price", "printed_on", "sold", "sequel_of")),
    )


def test_the_shop_is_read_whole(catalogue: Catalogue) -> None:
    assert len(catalogue.tables) >= 8
    assert all(table.rows and table.key is not None for table in catalogue.tables.values())
    assert any(key.table == key.references for key in catalogue.foreign_keys)


UNDECLARED = """
CREATE TABLE author (aid bigint, name text, oid bigint);
CREATE TABLE organization (oid bigint, name text);
CREATE TABLE writes (aid bigint, pid bigint);
CREATE TABLE paper (pid bigint NOT NULL, title text, year bigint, citedpaper bigint, started text);
"""
UNDECLARED_ROWS = """
INSERT INTO organization VALUES (1, 'a'), (2, 'b'), (3, 'c');
INSERT INTO author VALUES (1, 'x', 2), (2, 'y', 2), (3, 'z', NULL);
INSERT INTO paper VALUES (1, 'p', 2020, 9, '2024-01-31'), (2, 'q', 2021, 1, '2024-02-01'), (3, 'r', 2021, 2, NULL);
INSERT INTO writes VALUES (1, 1), (1, 2), (2, 3);
"""


def test_what_is_not_declared_is_seen_in_names_and_rows() -> None:
    found = read_catalogue(UNDECLARED, UNDECLARED_ROWS)
    assert {name: table.primary_key for name, table in found.tables.items()} == {
        "author": ("aid",),
        "organization": ("oid",),
        "paper": ("pid",),
        "writes": (),
    }
    assert {(key.table, key.column, key.references) for key in found.foreign_keys} == {
        *(("author", "oid", "organization"), ("writes", "aid", "author"), ("writes", "pid", "paper"))
    }
    assert [column.name for column in found.tables["author"].columns if column.nullable] == ["oid"]
    started = found.column("paper", "started")
    assert (started.kind, started.is_text_date, started.as_date("p.started")) == (Kind.DATE, True, "p.started::date")


def test_a_variant_that_disagrees_takes_back_what_the_main_seed_showed() -> None:
    other = UNDECLARED_ROWS.replace("(1, 1), (1, 2)", "(1, 1), (8, 2)").replace("'2024-01-31'", "'soon'")
    found = read_catalogue(UNDECLARED, UNDECLARED_ROWS, variants=[other.replace("(1, 'x', 2)", "(NULL, 'x', 2)")])
    assert ("writes", "aid") not in {(key.table, key.column) for key in found.foreign_keys}
    assert found.column("paper", "started").kind is Kind.TEXT
    assert found.column("author", "aid").nullable
    assert found.tables["author"].primary_key == ()


def test_odd_names_are_quoted_and_schemas_and_partitions_kept_apart() -> None:
    found = read_catalogue(
        """CREATE SCHEMA sales; CREATE TYPE mood AS ENUM ('b', 'a'); CREATE DOMAIN cents AS integer;
        CREATE TABLE sales."Order" ("orderId" serial PRIMARY KEY, "select" mood, price cents);
        CREATE TABLE event (at date, who int) PARTITION BY RANGE (at);
        CREATE TABLE event_2024 PARTITION OF event FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
        CREATE TABLE event_2025 (at date, who int);
        ALTER TABLE ONLY event ATTACH PARTITION event_2025 FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');""",
        """INSERT INTO sales."Order" ("select", price) VALUES ('a', '7'), ('b', 8);
        INSERT INTO event_2024 VALUES ('2024-05-05', 1); INSERT INTO event_2025 VALUES ('2025-05-05', 2);""",
    )
    order = found.tables["sales.Order"]
    assert (order.sql, [column.sql for column in order.columns]) == (
        'sales."Order"',
        ['"orderId"', '"select"', "price"],
    )
    assert order.rows == ({"orderId": 1, "select": "a", "price": 7}, {"orderId": 2, "select": "b", "price": 8})
    assert order.column("select").is_enum
    assert set(found.tables) == {"sales.Order", "event"}
    assert [row["who"] for row in found.tables["event"].rows] == [1, 2]


def test_notes_name_what_names_do_not_say() -> None:
    notes = "Names\n- paper.citedpaper = cited paper number\n- `writes` = authorships.\n- Ratio: a = b\n"
    found = read_catalogue(UNDECLARED, UNDECLARED_ROWS, notes)
    assert found.column("paper", "citedpaper").label == "cited paper number"
    assert found.tables["writes"].label == "authorships"
