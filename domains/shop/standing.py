"""Draws what the shop has before any order: suppliers, categories, products, employees, customers, coupons."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Final

from domains.shop import vocabulary
from domains.shop.dice import Dice
from domains.shop.rows import Category, Coupon, Customer, Employee, Product, Supplier

FIRST_DAY: Final = datetime.date(2023, 1, 1)
LAST_DAY: Final = datetime.date(2024, 12, 31)
OPENED_ON: Final = datetime.date(2022, 3, 1)
"""The first customer joined and the first product was launched no earlier."""

PRICES: Final = [
    *("3.90", "4.90", "7.50", "9.90", "9.90", "12.50", "14.99", "15.00", "18.00", "19.90", "19.90", "20.00", "24.90"),
    *("25.00", "29.90", "29.90", "33.33", "39.00", "45.00", "49.90", "50.00", "59.00", "75.00", "79.90", "99.00"),
    *("100.00", "119.00", "149.90", "189.00", "250.00", "329.00"),
]
EDGE_PRICES: Final = ["0.00", "0.01", "9.99", "10.00", "10.01", "20.00", "50.00", "50.00", "99.99", "100.00", "500.00"]
SALARIES: Final = [31000, 34000, 36500, 36500, 38000, 40000, 42000, 42000, 45000, 50000, 52000, 60000]


@dataclass(frozen=True)
class Shape:
    """What makes one seed differ from another: its random seed, sizes, and shares of edges and NULLs."""

    seed: int
    products: int
    customers: int
    orders: int
    edge_share: float
    """Probability that a date or an amount is a boundary value."""
    null_share: float
    """Probability of NULL where a column may be NULL for no reason in the other columns."""


def draw_suppliers(dice: Dice, shape: Shape) -> list[Supplier]:
    """One row a name; the second has agreed on no lead time, the last supplies nothing (see `draw_products`)."""
    pairs = zip(vocabulary.SUPPLIERS, vocabulary.ORIGINS, strict=True)
    return [
        Supplier(
            i, name, origin, None if dice.chance(shape.null_share) or i == 2 else dice.pick([3, 5, 7, 7, 10, 14, 21])
        )
        for i, (name, origin) in enumerate(pairs, 1)
    ]


def draw_categories() -> list[Category]:
    """Top-level categories first; the same in every seed."""
    tops = list(vocabulary.CATALOGUE)
    rows = [Category(i, name, None) for i, name in enumerate(tops, 1)]
    children = [(child, top) for top, group in vocabulary.CATALOGUE.items() for child in group]
    empty_top, empty_child = vocabulary.EMPTY_CATEGORY
    children.append((empty_child, empty_top))
    numbers = count(len(rows) + 1)
    return rows + [Category(next(numbers), child, tops.index(top) + 1) for child, top in children]


def draw_price(dice: Dice, shape: Shape) -> Decimal:
    """A price point: few enough that prices tie."""
    return Decimal(dice.pick(EDGE_PRICES if dice.chance(shape.edge_share) else PRICES))


def draw_products(dice: Dice, shape: Shape, categories: list[Category], suppliers: list[Supplier]) -> list[Product]:
    """`shape.products` of the catalogue's products, in an order of the seed's own."""
    numbers = {row.category_name: row.category_id for row in categories}
    catalogue = [(name, child) for group in vocabulary.CATALOGUE.values() for child in group for name in group[child]]
    rows = []
    for product_id, (name, child) in enumerate(dice.shuffled(catalogue)[: shape.products], 1):
        price = draw_price(dice, shape)
        launched = dice.day(OPENED_ON, datetime.date(2024, 9, 30))
        rows.append(
            Product(
                product_id=product_id,
                product_name=name,
                category_id=numbers[child],
                supplier_id=None if dice.chance(shape.null_share) else dice.pick(suppliers[:-1]).supplier_id,
                price=price,
                unit_cost=(price * dice.between(35, 75) / 100).quantize(Decimal("0.01")),
                stock=dice.pick([0, 0, 1, 5, 10, 12, 20, 25, 40, 50, 75, 100, 100, 150, 200, 400]),
                color=None if dice.chance(0.15 + shape.null_share) else dice.pick(vocabulary.COLORS, [5, 4, 3, 2, 1]),
                weight_kg=None if dice.chance(shape.null_share) else Decimal(dice.between(1, 60)) / 4,
                launched_on=launched,
                retired_on=dice.day(launched, LAST_DAY) if dice.chance(0.15) else None,
            )
        )
    return rows


def draw_employees(dice: Dice) -> list[Employee]:
    """The same people and managers in every seed; managers come before those they manage and none of them has quit."""
    numbers = {name: i for i, (name, _, _) in enumerate(vocabulary.EMPLOYEES, 1)}
    managers = {manager for _, _, manager in vocabulary.EMPLOYEES}
    rows = []
    for name, team, manager in vocabulary.EMPLOYEES:
        hired = dice.day(datetime.date(2021, 1, 1), datetime.date(2024, 3, 31))
        leaves = name not in managers and dice.chance(0.35)
        rows.append(
            Employee(
                employee_id=numbers[name],
                employee_name=name,
                team=team,
                manager_id=numbers[manager] if manager else None,
                salary=Decimal(dice.pick(SALARIES) + (24000 if name in managers else 0)).quantize(Decimal("0.01")),
                hired_on=hired,
                quit_on=dice.day(datetime.date(2024, 4, 1), LAST_DAY) if leaves else None,
            )
        )
    return rows


def customer_names() -> Iterator[str]:
    """Full names without end, the same in every seed; every 23rd repeats an earlier one: names do not identify."""
    for i in count():
        j = i - 11 if i % 23 == 22 else i
        yield f"{vocabulary.FIRST_NAMES[j % 20]} {vocabulary.LAST_NAMES[(j * 7 + j // 20) % 19]}"


def draw_customers(dice: Dice, shape: Shape) -> list[Customer]:
    """Customers by joining date; a referrer joined earlier."""
    names = dice.shuffled([name for name, _ in zip(customer_names(), range(shape.customers), strict=False)])
    days = sorted(dice.day(OPENED_ON, datetime.date(2024, 11, 30)) for _ in names)
    rows = []
    for customer_id, (name, joined) in enumerate(zip(names, days, strict=True), 1):
        country = dice.pick(list(vocabulary.CITIES), vocabulary.COUNTRY_WEIGHTS)
        referred = customer_id > 5 and dice.chance(0.3)
        rows.append(
            Customer(
                customer_id=customer_id,
                customer_name=name,
                country=country,
                city=dice.pick(vocabulary.CITIES[country], [3, 2]),
                segment=dice.pick(["private", "business", "school"], [70, 22, 8]),
                newsletter=None if dice.chance(shape.null_share + 0.05) else dice.chance(0.55),
                referrer_id=dice.between(1, max(1, customer_id // 3)) if referred else None,
                joined_on=joined,
            )
        )
    return rows


def draw_coupons(dice: Dice, shape: Shape) -> list[Coupon]:
    """The same codes in every seed; the first is always valid; the last is never used (see `draw_order`)."""
    rows = []
    for coupon_id, code in enumerate(vocabulary.COUPONS, 1):
        starts = OPENED_ON if coupon_id == 1 else dice.day(FIRST_DAY, datetime.date(2024, 9, 30))
        endless = coupon_id == 1 or dice.chance(shape.null_share)
        ends = None if endless else min(LAST_DAY, starts + datetime.timedelta(days=dice.between(20, 150)))
        rows.append(Coupon(coupon_id, code, dice.pick([5, 10, 10, 15, 20, 25, 50]), starts, ends))
    return rows
