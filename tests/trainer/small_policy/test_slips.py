"""A slip is one change, of the kinds that models make, and never the gold."""

from random import Random

import pytest

from services.trainer.small_policy.slips import slip


@pytest.mark.parametrize(
    ("gold", "slipped"),
    [
        ("SELECT id FROM items WHERE price < 5", {"SELECT id FROM items WHERE price <= 5"}),
        ("SELECT id FROM items WHERE price >= 5", {"SELECT id FROM items WHERE price > 5"}),
        ("SELECT id FROM items WHERE price <> 5", {"SELECT id FROM items WHERE price <> 5"}),
        ("SELECT city, avg(age) FROM people GROUP BY city", {"SELECT city, sum(age) FROM people GROUP BY city"}),
        ("SELECT id FROM items ORDER BY price DESC, id", {"SELECT id FROM items ORDER BY price, id"}),
        ("SELECT count(DISTINCT city) FROM people", {"SELECT count(city) FROM people"}),
        (
            "SELECT id FROM items WHERE color = 'red' AND price < 5.5 ORDER BY id",
            {
                "SELECT id FROM items WHERE color = 'red' ORDER BY id",
                "SELECT id FROM items WHERE color = 'red' AND price <= 5.5 ORDER BY id",
            },
        ),
        ("SELECT id FROM items WHERE price BETWEEN 1 AND 5", {"SELECT id FROM items WHERE price BETWEEN 1 AND 5"}),
    ],
)
def test_each_place_where_one_can_happen_is_drawn(gold: str, slipped: set[str]) -> None:
    assert {slip(gold, Random(seed)) for seed in range(40)} == slipped
