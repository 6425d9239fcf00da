"""A small bundle with two variants, made so that each test can say exactly what a query must return."""

from shared.contracts.verifier import BundleSource, ExecuteRequest, SandboxRequest, VerifyItem, VerifyRequest

SCHEMA = """
CREATE TABLE author (id int PRIMARY KEY, name text NOT NULL, born date, rating numeric(4, 2));
CREATE TABLE book (id int PRIMARY KEY, author_id int REFERENCES author, title text, price numeric(8, 2), sold int);
"""
MAIN = """
INSERT INTO author VALUES (1, 'Ada', '1990-01-01', 4.50), (2, 'Bo', '1985-05-05', 3.25), (3, 'Cy', NULL, NULL);
INSERT INTO book VALUES (1, 1, 'Alpha', 10.00, 5), (2, 1, 'Beta', 20.00, 5), (3, 2, 'Gamma', 30.00, 1);
"""
FEWER = """
INSERT INTO author VALUES (1, 'Ada', '1990-01-01', 4.50), (2, 'Bo', '1985-05-05', 3.25);
INSERT INTO book VALUES (1, 1, 'Alpha', 0.00, 0), (2, 1, 'Beta', 7.00, 2);
"""
NO_BOOKS = "INSERT INTO author VALUES (1, 'Ada', '1990-01-01', 4.50);"

STORE = BundleSource(
    name="bookstore", schema_sql=SCHEMA, seed_sql=MAIN, variants={"fewer": FEWER, "no-books": NO_BOOKS}
)

GOLD = "SELECT a.name, sum(b.price) FROM author a JOIN book b ON b.author_id = a.id GROUP BY a.name"


def sandbox_request(sandbox_id: str, bundle: BundleSource = STORE) -> SandboxRequest:
    return SandboxRequest(sandbox_id=sandbox_id, run_id="tests", bundle=bundle)


def verify_sql(gold: str | list[str], *statements: str, order_matters: bool | None = None) -> VerifyRequest:
    return VerifyRequest(items=[VerifyItem(sql=sql, gold=gold, order_matters=order_matters) for sql in statements])


def execute(*statements: str, repeat: int = 1) -> ExecuteRequest:
    return ExecuteRequest(statements=list(statements), repeat=repeat)
