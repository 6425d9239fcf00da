"""Rewrites `seed.sql` and `variants/*.sql` of the shop: `python -m domains.shop.generate`. Same code, same bytes."""

from pathlib import Path
from typing import Final

from domains.shop.dice import Dice
from domains.shop.rows import Store, seed_sql
from domains.shop.sales import Shop, draw_sales
from domains.shop.standing import (
    Shape,
    draw_categories,
    draw_coupons,
    draw_customers,
    draw_employees,
    draw_products,
    draw_suppliers,
)

FOLDER: Final = Path(__file__).parent
SHAPES: Final = {
    "seed.sql": Shape(seed=20230, products=58, customers=90, orders=300, edge_share=0.06, null_share=0.10),
    "variants/edges.sql": Shape(seed=7711, products=64, customers=100, orders=260, edge_share=0.45, null_share=0.35),
    "variants/crowd.sql": Shape(seed=424242, products=67, customers=140, orders=520, edge_share=0.10, null_share=0.15),
}


def draw_store(shape: Shape) -> Store:
    """All rows of one seed."""
    dice = Dice(shape.seed, shape.edge_share)
    suppliers, categories = draw_suppliers(dice, shape), draw_categories()
    shop = Shop(
        shape=shape,
        products=draw_products(dice, shape, categories, suppliers),
        employees=draw_employees(dice),
        customers=draw_customers(dice, shape),
        coupons=draw_coupons(dice, shape),
    )
    sales = draw_sales(dice, shop)
    return Store(
        suppliers,
        categories,
        shop.products,
        shop.employees,
        shop.customers,
        shop.coupons,
        sales.orders,
        sales.items,
        sales.payments,
        sales.shipments,
        sales.reviews,
        sales.refunds,
    )


def generated_files() -> dict[str, str]:
    """Path in the bundle to content."""
    return {path: seed_sql(draw_store(shape)) for path, shape in SHAPES.items()}


def main() -> None:
    """Write the files."""
    for path, text in generated_files().items():
        (FOLDER / path).write_text(text, encoding="utf-8")
        print(f"{FOLDER / path}: {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()
