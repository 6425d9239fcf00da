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


def test_rows_hold_the_literals_of_the_inserts_and_leave_out_what_is_computed() -> None:
    found = read_catalogue(SCHEMA, SEED)
    assert found.tables["shelf"].rows == (
        {"id": 1, "label": "it's", "tags": None},
        {"id": 2, "label": "b", "tags": "{x}"},
    )
    assert found.tables["book"].rows == (
        {"isbn": "x", "shelf": 1, "price": Decimal("-2.50"), "printed_on": "2024-02-03", "sold": True},
        {"isbn": "y", "shelf": 2},
    )


def test_the_shop_is_read_whole(catalogue: Catalogue) -> None:
    assert len(catalogue.tables) >= 8
    assert all(table.rows and table.key is not None for table in catalogue.tables.values())
    assert any(key.table == key.references for key in catalogue.foreign_keys)
