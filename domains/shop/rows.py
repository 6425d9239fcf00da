"""The rows of the shop's tables, in the order of the schema's columns, and their rendering as INSERT statements."""

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

Value = str | int | bool | Decimal | datetime.date | datetime.datetime | None


class Supplier(NamedTuple):
    supplier_id: int
    supplier_name: str
    origin: str
    lead_days: int | None


class Category(NamedTuple):
    category_id: int
    category_name: str
    parent_id: int | None


class Product(NamedTuple):
    product_id: int
    product_name: str
    category_id: int
    supplier_id: int | None
    price: Decimal
    unit_cost: Decimal
    stock: int
    color: str | None
    weight_kg: Decimal | None
    launched_on: datetime.date
    retired_on: datetime.date | None


class Employee(NamedTuple):
    employee_id: int
    employee_name: str
    team: str
    manager_id: int | None
    salary: Decimal
    hired_on: datetime.date
    quit_on: datetime.date | None


class Customer(NamedTuple):
    customer_id: int
    customer_name: str
    country: str
    city: str
    segment: str
    newsletter: bool | None
    referrer_id: int | None
    joined_on: datetime.date


class Coupon(NamedTuple):
    coupon_id: int
    code: str
    percent_off: int
    starts_on: datetime.date
    ends_on: datetime.date | None


class Order(NamedTuple):
    order_id: int
    customer_id: int
    employee_id: int | None
    coupon_id: int | None
    channel: str
    status: str
    freight: Decimal
    ordered_on: datetime.date


class Item(NamedTuple):
    item_id: int
    order_id: int
    product_id: int
    quantity: int
    unit_price: Decimal


class Payment(NamedTuple):
    payment_id: int
    order_id: int
    pay_method: str
    amount: Decimal
    tried_on: datetime.date
    paid_at: datetime.datetime | None


class Shipment(NamedTuple):
    shipment_id: int
    order_id: int
    carrier: str
    warehouse: str
    fee: Decimal
    shipped_on: datetime.date | None
    delivered_on: datetime.date | None


class Review(NamedTuple):
    review_id: int
    product_id: int
    customer_id: int
    rating: int
    headline: str | None
    helpful: int
    reviewed_on: datetime.date


class Refund(NamedTuple):
    refund_id: int
    item_id: int
    reason: str
    units: int
    refunded: Decimal | None
    requested_on: datetime.date


class Store(NamedTuple):
    """All rows of one seed. Field names are table names, in an order that satisfies the foreign keys."""

    suppliers: list[Supplier]
    categories: list[Category]
    products: list[Product]
    employees: list[Employee]
    customers: list[Customer]
    coupons: list[Coupon]
    orders: list[Order]
    items: list[Item]
    payments: list[Payment]
    shipments: list[Shipment]
    reviews: list[Review]
    refunds: list[Refund]


def literal(value: Value) -> str:
    """A value as a Postgres literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def insert_statement(table: str, columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    """One INSERT, one row a line. `rows` is not empty."""
    lines = ",\n".join("(" + ", ".join(map(literal, row)) + ")" for row in rows)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES\n{lines};\n"


def seed_sql(store: Store) -> str:
    """A store as a seed file."""
    return "\n".join(insert_statement(name, rows[0]._fields, rows) for name, rows in store._asdict().items())
