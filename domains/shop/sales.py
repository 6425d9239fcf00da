"""Draws orders and what follows from them, so that dates, states and amounts agree with each other."""

import datetime
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from domains.shop import vocabulary
from domains.shop.dice import Dice
from domains.shop.rows import Coupon, Customer, Employee, Item, Order, Payment, Product, Refund, Review, Shipment
from domains.shop.standing import FIRST_DAY, LAST_DAY, Shape

CENT: Final = Decimal("0.01")
MONTH_WEIGHTS: Final = [6, 5, 6, 7, 8, 7, 6, 6, 8, 9, 14, 18]
"""January to December: the Christmas trade."""
CHANNELS: Final = ["web", "app", "phone", "market"]
CARRIERS: Final = ["Nordpost", "Swift", "Atlas", "Pelican"]
WAREHOUSES: Final = ["Bremen", "Lyon", "Vienna"]
PAY_METHODS: Final = ["card", "paypal", "transfer", "invoice"]
REASONS: Final = ["regret", "size", "broken", "wrong", "late"]


@dataclass
class Sales:
    """Everything drawn for the orders of one seed."""

    orders: list[Order] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    payments: list[Payment] = field(default_factory=list)
    shipments: list[Shipment] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    refunds: list[Refund] = field(default_factory=list)


@dataclass(frozen=True)
class Shop:
    """What the draws below read: the standing data of the same seed."""

    shape: Shape
    products: list[Product]
    employees: list[Employee]
    customers: list[Customer]
    coupons: list[Coupon]


def draw_sales(dice: Dice, shop: Shop) -> Sales:
    """All orders by date with their items, payments, shipments, reviews and refunds."""
    sales = Sales()
    for order_id, day in enumerate(sorted(draw_day(dice) for _ in range(shop.shape.orders)), 1):
        lines = draw_items(dice, shop, order_id, day, len(sales.items) + 1)
        subtotal = sum((line.quantity * line.unit_price for line in lines), Decimal(0))
        order = draw_order(dice, shop, order_id, day, subtotal)
        coupon = next((c for c in shop.coupons if c.coupon_id == order.coupon_id), None)
        share = Decimal(100 - (coupon.percent_off if coupon else 0)) / 100
        sales.orders.append(order)
        sales.items += lines
        sales.payments += draw_payments(dice, order, (subtotal * share + order.freight).quantize(CENT), sales)
        parcels = draw_shipments(dice, order, len(sales.shipments) + 1)
        sales.shipments += parcels
        arrivals = [parcel.delivered_on for parcel in parcels if parcel.delivered_on]
        if order.status == "delivered" and arrivals:
            for line in lines:
                draw_aftermath(dice, shop, order, line, max(arrivals), share, sales)
    return sales


def draw_day(dice: Dice) -> datetime.date:
    """An order's date: the second year is busier, and so is every year's end."""
    year = dice.pick([FIRST_DAY.year, LAST_DAY.year], [0.42, 0.58])
    month = dice.pick(range(1, 13), MONTH_WEIGHTS)
    first = datetime.date(year, month, 1)
    return dice.day(first, (first + datetime.timedelta(days=31)).replace(day=1) - datetime.timedelta(days=1))


def draw_order(dice: Dice, shop: Shop, order_id: int, day: datetime.date, subtotal: Decimal) -> Order:
    """The order itself. A fifth of the customers never order; among the others, few order often."""
    buyers = [c for c in shop.customers if c.joined_on <= day and c.customer_id % 5 != 3]
    channel = dice.pick(CHANNELS, [50, 24, 14, 12])
    sellers = [e for e in shop.employees if e.team == "sales" and e.hired_on <= day <= (e.quit_on or day)]
    attended = bool(sellers) and dice.chance(0.9 if channel == "phone" else 0.15)
    valid = [c for c in shop.coupons[:-1] if c.starts_on <= day <= (c.ends_on or day)]
    return Order(
        order_id=order_id,
        customer_id=dice.pick(buyers, [1 / (1 + c.customer_id * 13 % 40) + 0.03 for c in buyers]).customer_id,
        employee_id=dice.pick(sellers).employee_id if attended else None,
        coupon_id=dice.pick(valid).coupon_id if valid and dice.chance(0.3 - shop.shape.null_share / 2) else None,
        channel=channel,
        status=draw_status(dice, day),
        freight=Decimal("0.00") if subtotal >= 100 else Decimal(dice.pick(["3.90", "4.90", "4.90", "6.50", "9.90"])),
        ordered_on=day,
    )


def draw_status(dice: Dice, day: datetime.date) -> str:
    """Old orders are mostly settled; those of the last three weeks are in every state."""
    recent = day > LAST_DAY - datetime.timedelta(days=21)
    states = ["delivered", "cancelled", "shipped", "paid", "pending"]
    return dice.pick(states, [30, 8, 26, 20, 16] if recent else [84, 8, 3, 2, 3])


def draw_items(dice: Dice, shop: Shop, order_id: int, day: datetime.date, first_id: int) -> list[Item]:
    """One to five lines of different products on sale that day. Every ninth product never sells."""
    on_sale = [p for p in shop.products if p.launched_on <= day <= (p.retired_on or day) and p.product_id % 9 != 4]
    lines: list[Item] = []
    for _ in range(dice.pick([1, 2, 3, 4, 5], [34, 28, 20, 12, 6])):
        left = [p for p in on_sale if p.product_id not in {line.product_id for line in lines}]
        if not left:
            break
        product = dice.pick(left, [1 / (1 + p.product_id * 7 % 30) + 0.04 for p in left])
        older = dice.chance(0.25)
        price = (product.price * Decimal("0.9")).quantize(CENT) if older else product.price
        quantity = dice.pick([1, 2, 3, 4, 5, 10], [58, 22, 9, 5, 4, 2])
        lines.append(Item(first_id + len(lines), order_id, product.product_id, quantity, price))
    return lines


def draw_payments(dice: Dice, order: Order, total: Decimal, sales: Sales) -> list[Payment]:
    """Failed attempts first, then the one that worked, unless the order is pending or was cancelled unpaid."""
    method = dice.pick(PAY_METHODS, [48, 26, 14, 12])
    unpaid = order.status == "pending" or (order.status == "cancelled" and dice.chance(0.8))
    failures = dice.pick([0, 1, 2], [45, 40, 15] if unpaid else [86, 11, 3])
    rows: list[Payment] = []
    day = order.ordered_on
    for attempt in range(failures + (0 if unpaid else 1)):
        wait = 14 if method == "invoice" else 0
        tried = min(LAST_DAY, day + datetime.timedelta(days=dice.between(wait and 3, wait)))
        clock = datetime.time(dice.between(0, 23), dice.pick([0, 5, 15, 30, 42, 59]))
        paid_at = datetime.datetime.combine(tried, clock) if attempt == failures else None
        rows.append(
            Payment(len(sales.payments) + len(rows) + 1, order.order_id, method, total, tried, paid_at),
        )
        day, method = tried, dice.pick(PAY_METHODS[:3]) if dice.chance(0.3) else method
    return rows


def draw_shipments(dice: Dice, order: Order, first_id: int) -> list[Shipment]:
    """Parcels of an order that was paid; a date that would fall after the last day has not happened yet."""
    if order.status in ("pending", "cancelled"):
        return []
    rows = []
    for number in range(2 if dice.chance(0.12) else 1):
        shipped, delivered = None, None
        if order.status in ("shipped", "delivered"):
            shipped = min(LAST_DAY, order.ordered_on + datetime.timedelta(days=dice.pick([0, 1, 1, 2, 3, 5])))
        if order.status == "delivered" and shipped:
            delivered = min(LAST_DAY, shipped + datetime.timedelta(days=dice.pick([1, 2, 2, 3, 4, 7, 14])))
        carrier, warehouse = dice.pick(CARRIERS, [42, 28, 20, 10]), dice.pick(WAREHOUSES, [50, 30, 20])
        fee = Decimal(dice.pick(["2.80", "3.20", "3.20", "4.10", "5.00", "7.90", "12.00"]))
        rows.append(Shipment(first_id + number, order.order_id, carrier, warehouse, fee, shipped, delivered))
    return rows


def draw_aftermath(
    dice: Dice, shop: Shop, order: Order, line: Item, arrived: datetime.date, share: Decimal, sales: Sales
) -> None:
    """A review and a refund of one delivered line, perhaps. `share` is what the coupon leaves of the price."""
    nulls = shop.shape.null_share
    reviewed = any((r.product_id, r.customer_id) == (line.product_id, order.customer_id) for r in sales.reviews)
    if not reviewed and line.product_id % 6 != 5 and dice.chance(0.34):
        ratings = [1, 5] if dice.chance(shop.shape.edge_share) else [1, 2, 3, 4, 5]
        rating = dice.pick(ratings, [10, 6, 12, 30, 42][-len(ratings) :])
        headline = None if dice.chance(0.3 + nulls / 2) else dice.pick(vocabulary.HEADLINES)
        helpful = dice.pick([0, 1, 2, 3, 5, 8, 13, 20], [40, 18, 12, 9, 8, 6, 4, 3])
        day = min(LAST_DAY, arrived + datetime.timedelta(days=dice.between(0, 40)))
        sales.reviews.append(
            Review(len(sales.reviews) + 1, line.product_id, order.customer_id, rating, headline, helpful, day)
        )
    if dice.chance(0.11):
        units = dice.between(1, line.quantity)
        paid = (units * line.unit_price * share).quantize(CENT)
        outcome = dice.pick(["paid", "refused", "open"], [75, 10, 15 + 100 * nulls])
        refunded = {"paid": paid, "refused": Decimal("0.00"), "open": None}[outcome]
        day = min(LAST_DAY, arrived + datetime.timedelta(days=dice.between(0, 30)))
        reason = dice.pick(REASONS, [34, 24, 20, 12, 10])
        sales.refunds.append(Refund(len(sales.refunds) + 1, line.item_id, reason, units, refunded, day))
