"""Each of the shop's seeds in a real PostgreSQL 18: keys hold, and the rows have what tasks are made of."""

import psycopg
import pytest

from domains.shop.generate import FOLDER
from shared.domain import load_bundle, table_names
from tests.domains.conftest import emptied

BUNDLE = load_bundle(FOLDER)
SEEDS = {"main": BUNDLE.seed_sql, **BUNDLE.variants}

NEVER_EMPTY = {
    "a customer without orders": "SELECT 1 FROM customers WHERE customer_id NOT IN (SELECT customer_id FROM orders)",
    "a product never sold": "SELECT 1 FROM products WHERE product_id NOT IN (SELECT product_id FROM items)",
    "a product sold but never reviewed": "SELECT product_id FROM items EXCEPT SELECT product_id FROM reviews",
    "a category without products": (
        "SELECT 1 FROM categories WHERE parent_id IS NOT NULL AND category_id NOT IN (SELECT category_id FROM products)"
    ),
    "a supplier without products": (
        "SELECT 1 FROM suppliers s WHERE NOT EXISTS (SELECT 1 FROM products p WHERE p.supplier_id = s.supplier_id)"
    ),
    "a coupon never used": (
        "SELECT 1 FROM coupons c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.coupon_id = c.coupon_id)"
    ),
    "an order without payment": "SELECT 1 FROM orders WHERE order_id NOT IN (SELECT order_id FROM payments)",
    "an order with two shipments": "SELECT 1 FROM shipments GROUP BY order_id HAVING count(*) > 1",
    "two customers of one name": "SELECT 1 FROM customers GROUP BY customer_name HAVING count(*) > 1",
    "products that tie on price": "SELECT 1 FROM products GROUP BY price HAVING count(*) > 2",
    "a failed payment before a good one": (
        "SELECT 1 FROM payments GROUP BY order_id HAVING count(paid_at) = 1 AND count(*) > 1"
    ),
    "an undecided refund": "SELECT 1 FROM refunds WHERE refunded IS NULL",
    "a refund turned down": "SELECT 1 FROM refunds WHERE refunded = 0",
    "three levels of managers": (
        "SELECT 1 FROM employees a JOIN employees b ON a.manager_id = b.employee_id WHERE b.manager_id IS NOT NULL"
    ),
    "an employee paid more than the manager": (
        "SELECT 1 FROM employees a JOIN employees b ON a.manager_id = b.employee_id WHERE a.salary > b.salary"
    ),
    "a referred customer": "SELECT 1 FROM customers WHERE referrer_id IS NOT NULL",
}

ALWAYS_EMPTY = {
    "an order before its customer joined": (
        "SELECT 1 FROM orders JOIN customers USING (customer_id) WHERE ordered_on < joined_on"
    ),
    "an item sold before launch or after retirement": (
        "SELECT 1 FROM items JOIN orders USING (order_id) JOIN products USING (product_id) "
        "WHERE ordered_on < launched_on OR ordered_on > retired_on"
    ),
    "a coupon used outside its dates": (
        "SELECT 1 FROM orders JOIN coupons USING (coupon_id) WHERE ordered_on < starts_on OR ordered_on > ends_on"
    ),
    "a delivered order with an open shipment": (
        "SELECT 1 FROM shipments JOIN orders USING (order_id) WHERE status = 'delivered' AND delivered_on IS NULL"
    ),
    "a shipment before its order": (
        "SELECT 1 FROM shipments JOIN orders USING (order_id) WHERE shipped_on < ordered_on"
    ),
    "a shipment delivered but not shipped": (
        "SELECT 1 FROM shipments WHERE shipped_on IS NULL AND delivered_on IS NOT NULL"
    ),
    "an order without items": "SELECT 1 FROM orders WHERE order_id NOT IN (SELECT order_id FROM items)",
    "a settled order never paid": (
        "SELECT 1 FROM orders JOIN payments USING (order_id) WHERE status IN ('paid', 'shipped', 'delivered') "
        "GROUP BY order_id HAVING count(paid_at) <> 1"
    ),
    "more units sent back than bought": "SELECT 1 FROM refunds JOIN items USING (item_id) WHERE units > quantity",
    "a review by someone who did not buy": (
        "SELECT product_id, customer_id FROM reviews EXCEPT "
        "SELECT product_id, customer_id FROM items JOIN orders USING (order_id)"
    ),
    "an order taken by someone not employed then": (
        "SELECT 1 FROM orders JOIN employees USING (employee_id) WHERE ordered_on < hired_on OR ordered_on > quit_on"
    ),
    "a product in a top-level category": (
        "SELECT 1 FROM products JOIN categories USING (category_id) WHERE parent_id IS NULL"
    ),
}


@pytest.fixture(scope="module", params=SEEDS)
def shop(request: pytest.FixtureRequest, scratch: psycopg.Connection) -> psycopg.Connection:
    """The shop with one of its seeds."""
    return load(scratch, request.param)


def load(connection: psycopg.Connection, seed: str) -> psycopg.Connection:
    """The shop with the seed of this name, instead of what was there; proves every key, CHECK and type."""
    emptied(connection).execute(BUNDLE.schema_sql)
    connection.execute(SEEDS[seed])
    return connection


def values(connection: psycopg.Connection, sql: str) -> list[object]:
    """First column of a query."""
    return [row[0] for row in connection.execute(sql).fetchall()]


def test_postgres_is_version_18(shop: psycopg.Connection) -> None:
    assert shop.info.server_version // 10000 == 18


@pytest.mark.parametrize("what", NEVER_EMPTY)
def test_there_is(shop: psycopg.Connection, what: str) -> None:
    assert values(shop, NEVER_EMPTY[what]), what


@pytest.mark.parametrize("what", ALWAYS_EMPTY)
def test_there_is_never(shop: psycopg.Connection, what: str) -> None:
    assert values(shop, ALWAYS_EMPTY[what]) == [], what


def test_every_column_that_may_be_null_is_null_somewhere_and_not_everywhere(shop: psycopg.Connection) -> None:
    nullable = shop.execute(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = 'public' AND is_nullable = 'YES'"
    ).fetchall()
    assert len(nullable) == 18
    for table, column in nullable:
        kinds = set(values(shop, f"SELECT {column} IS NULL FROM {table}"))
        assert kinds == {True, False}, f"{table}.{column}"


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("customers", "country"),
        ("customers", "city"),
        ("customers", "segment"),
        ("products", "color"),
        ("suppliers", "origin"),
        ("employees", "team"),
        ("orders", "channel"),
        ("orders", "status"),
        ("payments", "pay_method"),
        ("shipments", "carrier"),
        ("shipments", "warehouse"),
        ("refunds", "reason"),
    ],
)
def test_columns_for_grouping_have_3_to_12_values(shop: psycopg.Connection, table: str, column: str) -> None:
    (count,) = values(shop, f"SELECT count(DISTINCT {column}) FROM {table}")
    assert 3 <= int(str(count)) <= 12


def test_no_table_is_empty(shop: psycopg.Connection) -> None:
    assert len(table_names(BUNDLE)) == 12
    for table in table_names(BUNDLE):
        assert values(shop, f"SELECT 1 FROM {table} LIMIT 1") == [1]


def test_main_has_about_300_orders(scratch: psycopg.Connection) -> None:
    assert values(load(scratch, "main"), "SELECT count(*) FROM orders") == [300]


def test_variants_differ_from_main_in_every_measure_but_not_in_vocabulary(scratch: psycopg.Connection) -> None:
    measures = [
        "SELECT sum(quantity * unit_price) FROM items",
        "SELECT count(*) FROM orders",
        "SELECT avg(rating) FROM reviews",
        "SELECT array_agg(price ORDER BY product_name) FROM products",
        "SELECT array_agg(ordered_on ORDER BY order_id) FROM orders",
        "SELECT array_agg(country ORDER BY customer_id) FROM customers",
    ]
    names = ["SELECT product_name FROM products", "SELECT customer_name FROM customers", "SELECT code FROM coupons"]
    seen: dict[str, list[object]] = {}
    words: dict[str, list[set[object]]] = {}
    for name in SEEDS:
        load(scratch, name)
        seen[name] = [values(scratch, sql) for sql in measures]
        words[name] = [set(values(scratch, sql)) for sql in names]
    for variant in BUNDLE.variants:
        assert all(a != b for a, b in zip(seen["main"], seen[variant], strict=True))
        for main_words, variant_words in zip(words["main"], words[variant], strict=True):
            assert len(main_words & variant_words) >= 0.85 * len(main_words)


def test_edges_variant_has_rows_on_both_sides_of_a_boundary(scratch: psycopg.Connection) -> None:
    load(scratch, "edges")
    days = {str(day) for day in values(scratch, "SELECT ordered_on FROM orders")}
    assert {"2023-01-01", "2023-06-30", "2023-07-01", "2024-02-29", "2024-12-31"} <= days
    prices = {str(price) for price in values(scratch, "SELECT price FROM products")}
    assert {"0.00", "0.01", "10.00", "10.01", "50.00", "99.99", "100.00", "500.00"} <= prices
