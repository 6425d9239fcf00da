"""Comparing results without a database, under profile `standard` where nothing else is said."""

import random
import time
from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.support.tables import cases
from services.verifier.comparison import Difference, Table, compare, compare_in_place
from services.verifier.nested import Value
from services.verifier.signature import signature
from services.verifier.tolerance import HALF_CENT
from services.verifier.values import decoder
from tests.verifier.oracle import same_result

Row = tuple[Value, ...]

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Neighbours on the machine are no defect."""


def table(rows: Sequence[Row]) -> Table:
    width = len(rows[0]) if rows else 0
    return Table(tuple(f"c{i}" for i in range(width)), rows)


def equal(gold: Sequence[Row], candidate: Sequence[Row], groups: Sequence[int] | None = None) -> bool:
    return compare(table(gold), table(candidate), groups).equal


def permuted(rows: Sequence[Row], order: Sequence[int]) -> list[Row]:
    return [tuple(row[i] for i in order) for row in rows]


numbers = st.integers(-50, 50).map(Decimal) | st.decimals(-9, 9, places=3)
cells: st.SearchStrategy[Value] = (
    st.none() | numbers | st.sampled_from(["a", "b", "c", ""]) | st.booleans().map(lambda flag: ("bool", flag))
)


@st.composite
def results(draw: st.DrawFn, minimum_columns: int = 1) -> list[Row]:
    width = draw(st.integers(minimum_columns, 5))
    return draw(st.lists(st.tuples(*[cells] * width), min_size=1, max_size=12))


@unhurried
@given(results(), st.randoms(use_true_random=False))
def test_equal_under_any_order_of_rows_and_columns(rows: list[Row], chance: random.Random) -> None:
    columns = list(range(len(rows[0])))
    chance.shuffle(columns)
    shuffled = permuted(rows, columns)
    chance.shuffle(shuffled)
    assert equal(rows, rows)
    assert equal(rows, shuffled)


@unhurried
@given(results(), st.data())
def test_a_dropped_row_is_seen_also_when_it_was_a_duplicate(rows: list[Row], data: st.DataObject) -> None:
    doubled = [*rows, data.draw(st.sampled_from(rows))]
    assert not equal(doubled, rows)
    assert not equal(rows, doubled)


@unhurried
@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=8))
def test_duplicates_are_counted(names: list[str]) -> None:
    assume(len(set(names)) > 1)
    gold: list[Row] = [(name, Decimal(1)) for name in [*names, names[0]]]
    other = next(name for name in names if name != names[0])
    candidate: list[Row] = [(name, Decimal(1)) for name in [*names, other]]
    assert not equal(gold, candidate)


@unhurried
@given(results(), st.data())
def test_a_changed_cell_is_seen(rows: list[Row], data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.integers(0, len(rows[0]) - 1))
    changed = [list(values) for values in rows]
    changed[row][column] = "a value that no strategy draws"
    assert not equal(rows, [tuple(values) for values in changed])


@unhurried
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=10, unique=True), st.randoms(use_true_random=False))
def test_values_paired_with_other_rows_are_seen(values: list[int], chance: random.Random) -> None:
    names = [f"n{value}" for value in values]
    moved = [*names[1:], names[0]]
    gold: list[Row] = [(Decimal(value), name) for value, name in zip(values, names, strict=True)]
    candidate: list[Row] = [(Decimal(value), name) for value, name in zip(values, moved, strict=True)]
    chance.shuffle(candidate)
    assert not equal(gold, candidate)


@unhurried
@given(results(), st.randoms(use_true_random=False))
def test_order_counts_between_tie_groups_and_not_within(rows: list[Row], chance: random.Random) -> None:
    groups = sorted(chance.randrange(3) for _ in rows)
    within = [
        row
        for group in sorted(set(groups))
        for row in chance.sample(
            [row for row, number in zip(rows, groups, strict=True) if number == group], groups.count(group)
        )
    ]
    assert equal(rows, within, groups)


@unhurried
@given(results())
def test_reversed_rows_are_another_sequence(rows: list[Row]) -> None:
    assume(len(set(rows)) > 1)
    distinct = list(dict.fromkeys(rows))
    numbered: list[Row] = [(("row", i), *row) for i, row in enumerate(distinct)]
    assert not equal(numbered, numbered[::-1], range(len(numbered)))
    assert equal(numbered, numbered[::-1])


@unhurried
@given(results(), st.randoms(use_true_random=False))
def test_signatures_follow_the_multiset(rows: list[Row], chance: random.Random) -> None:
    shuffled = chance.sample(rows, len(rows))
    assert signature(rows) == signature(shuffled)
    assert signature([*rows, rows[0]]) != signature(rows)


@pytest.mark.parametrize(
    "gold, candidate, same",
    [
        ("0.1234", "0.12", True),
        ("2.675", "2.68", True),
        ("2.68", "2.675", True),
        ("0.004", "0", False),
        ("0", "0.004", False),
        ("0.004", "0.009", False),
        ("100", "100.005", True),
        ("100", "100.006", False),
        ("1e300", "1e300", True),
        ("0", "0.00", True),
        ("-3.333333", "-3.33", True),
    ],
)
def test_half_a_cent_and_five_percent(gold: str, candidate: str, same: bool) -> None:
    assert HALF_CENT.close(Decimal(gold), Decimal(candidate)) is same
    assert equal([(Decimal(gold), "x")], [("x", Decimal(candidate))]) is same


def test_overlapping_tolerances_are_matched_row_by_row() -> None:
    gold: list[Row] = [(Decimal("1.000"), "a"), (Decimal("1.004"), "a"), (Decimal("1.008"), "a")]
    chain: list[Row] = [(Decimal("1.004"), "a"), (Decimal("1.008"), "a"), (Decimal("1.012"), "a")]
    broken: list[Row] = [(Decimal("1.004"), "a"), (Decimal("1.012"), "a"), (Decimal("1.012"), "a")]
    assert equal(gold, chain)
    assert not equal(gold, broken)


@given(st.lists(st.decimals(-10_000, 10_000, places=6) | st.decimals(-9, 9, places=9), min_size=1))
def test_integers_bound_short_numbers_as_decimals_do(numbers: list[Decimal]) -> None:
    exactly = HALF_CENT.billionths(numbers)
    if exactly is None:
        assert any(round(number, 7) != number for number in numbers)
        return
    lows, highs = HALF_CENT.billionth_bounds(exactly)
    for number, low, high in zip(numbers, lows, highs, strict=True):
        assert (Decimal(int(low)) / 10**9, Decimal(int(high)) / 10**9) == (
            HALF_CENT.lower(number),
            HALF_CENT.upper(number),
        )


def test_tolerances_overlap_over_more_rows_than_a_word_has_bits() -> None:
    gold: list[Row] = [(Decimal(k) / 1000, Decimal(k % 7) / 300) for k in range(1000, 1150)]
    near: list[Row] = [(second, first + Decimal("0.005")) for first, second in reversed(gold)]
    assert equal(gold, near)
    assert not equal(gold, [(near[0][0], near[0][1] + Decimal("0.001")), *near[1:]])
    assert not equal(gold, [*near[1:], near[1]])


def test_no_kind_equals_another() -> None:
    one = [decoder(23)("1"), decoder(25)("1"), decoder(16)("t"), decoder(1186)("PT1S"), decoder(17)("\\x01"), None]
    for index, gold in enumerate(one):
        assert [equal([(gold,)], [(candidate,)]) for candidate in one] == [index == other for other in range(len(one))]


OIDS = {
    "numeric": 1700, "float8": 701, "text": 25, "bool": 16, "date": 1082, "timestamp": 1114, "timestamptz": 1184,
    "interval": 1186, "time": 1083, "timetz": 1266, "jsonb": 3802, "int4[]": 1007, "text[]": 1009, "int4range": 3904,
    "numrange": 3906, "nummultirange": 4532, "bytea": 17, "money": 790, "uuid": 2950,
}  # fmt: skip


@pytest.mark.parametrize(
    "left, right, same",
    [
        (("numeric", "1.50"), ("float8", "1.5"), True),
        (("float8", "NaN"), ("numeric", "NaN"), True),
        (("float8", "Infinity"), ("float8", "-Infinity"), False),
        (("money", "$1,234.50"), ("numeric", "1234.5"), True),
        (("text", " Ab "), ("text", "aB"), True),
        (("text", "1,000"), ("text", "1000"), False),
        (("date", "2024-02-29"), ("timestamp", "2024-02-29 00:00:00"), True),
        (("date", "2024-02-29"), ("timestamp", "2024-02-29 00:00:01"), False),
        (("timestamptz", "2024-01-01 02:00:00+02"), ("timestamptz", "2024-01-01 00:00:00+00"), True),
        (("timestamp", "2024-01-01 00:00:00.5"), ("timestamp", "2024-01-01 00:00:00.500000"), True),
        (("date", "0044-03-15 BC"), ("date", "0044-03-15"), False),
        (("date", "infinity"), ("timestamp", "infinity"), True),
        (("date", "2024-01-01"), ("text", "2024-01-01"), False),
        (("interval", "P1Y"), ("interval", "P12M"), True),
        (("interval", "P1DT24H"), ("interval", "P2D"), True),
        (("interval", "PT0.5S"), ("interval", "PT0.25S"), False),
        (("time", "10:00:00"), ("timetz", "12:00:00+02"), True),
        (("jsonb", '{"a": 1, "b": [1.0]}'), ("jsonb", '{"b": [1], "a": 1.0}'), True),
        (("jsonb", '{"a": "1"}'), ("jsonb", '{"a": 1}'), False),
        (("jsonb", "true"), ("jsonb", "1"), False),
        (("int4[]", "{1,2,NULL}"), ("int4[]", "{1,2,NULL}"), True),
        (("int4[]", "{1,2}"), ("int4[]", "{2,1}"), False),
        (("text[]", '{"NULL",a}'), ("text[]", "{NULL,a}"), False),
        (("text[]", '{"a,b"}'), ("text[]", "{a,b}"), False),
        (("int4[]", "{{1,2},{3,4}}"), ("int4[]", "{1,2,3,4}"), False),
        (("numrange", "[1.0,2)"), ("numrange", "[1,2.00)"), True),
        (("numrange", "[1,2)"), ("numrange", "[1,2]"), False),
        (("int4range", "empty"), ("int4range", "empty"), True),
        (("nummultirange", "{[1,2),[3.0,4)}"), ("nummultirange", "{[1.0,2),[3,4)}"), True),
        (("nummultirange", "{[1,2),[3,4)}"), ("nummultirange", "{[1,2),[3,5)}"), False),
        (("bytea", "\\x41"), ("text", "A"), False),
        (("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"), ("text", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), True),
    ],
)  # fmt: skip
def test_values_by_type(left: tuple[str, str], right: tuple[str, str], same: bool) -> None:
    (left_type, left_text), (right_type, right_text) = left, right
    gold, candidate = decoder(OIDS[left_type])(left_text), decoder(OIDS[right_type])(right_text)
    assert equal([(gold,)], [(candidate,)]) is same


# ------------------------------------------------------------------------------------- against trying everything

near = st.sampled_from(
    [Decimal(text) for text in ("1", "1.002", "1.004", "1.008", "1.012", "-1", "0", "0.004", "0.0042")]
)
small_cells: st.SearchStrategy[Value] = near | st.sampled_from([None, "a", ("bool", True)])


@st.composite
def two_results(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """A small result, and another of its shape that is often nearly the same."""
    width, height = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    pool = draw(st.sampled_from([near, small_cells]))
    gold = draw(st.lists(st.tuples(*[pool] * width), min_size=height, max_size=height))
    candidate = [list(row) for row in draw(st.permutations(gold))] if draw(st.booleans()) else [list(r) for r in gold]
    for _ in range(draw(st.integers(0, 3))):
        row, column = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
        old, shift = candidate[row][column], draw(st.sampled_from([Decimal("0.004"), Decimal("-0.003")]))
        candidate[row][column] = old + shift if isinstance(old, Decimal) and draw(st.booleans()) else draw(pool)
    order = draw(st.permutations(range(width)))
    return gold, permuted([tuple(row) for row in candidate], order)


@settings(unhurried, max_examples=300)
@given(two_results(), st.lists(st.integers(0, 2), min_size=6, max_size=6), st.booleans())
def test_the_search_agrees_with_trying_every_order(
    results: tuple[list[Row], list[Row]], numbers: list[int], ordered: bool
) -> None:
    gold, candidate = results
    groups = sorted(numbers[: len(gold)])
    tried = same_result(gold, candidate, groups if ordered else None)
    assert equal(gold, candidate, groups if ordered else None) is tried


@settings(unhurried, max_examples=100)
@given(two_results())
def test_floats_in_place_agree_with_trying_every_row(results: tuple[list[Row], list[Row]]) -> None:
    gold, candidate = results
    noisy = [tuple(c * (1 + Decimal("4e-7")) if isinstance(c, Decimal) else c for c in row) for row in candidate]
    floats = frozenset(range(len(gold[0])))
    sides = (Table(("c",) * len(gold[0]), rows, floats) for rows in (gold, noisy))
    # Drawn numbers differ by far more than noise, so noise must change nothing.
    assert compare_in_place(*sides, None).equal is (sorted(map(repr, gold)) == sorted(map(repr, candidate)))


# ----------------------------------------------------------------------------------------------------- more properties

whole = st.none() | st.integers(-5, 5).map(Decimal) | st.sampled_from("abc")


@unhurried
@given(st.data())
def test_symmetric_where_no_two_numbers_are_near(data: st.DataObject) -> None:
    width, height = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    rows = st.lists(st.tuples(*[whole] * width), min_size=height, max_size=height)
    left, right = data.draw(rows), data.draw(rows)
    assert equal(left, right) is equal(right, left)


@unhurried
@given(results())
def test_names_of_columns_do_not_count(rows: list[Row]) -> None:
    width = len(rows[0])
    for profile in (compare, compare_in_place):
        assert profile(Table(("a",) * width, rows), Table(("b",) * width, rows), None).equal


@unhurried
@given(results(minimum_columns=2), st.randoms(use_true_random=False))
def test_in_place_a_column_elsewhere_is_another_result(rows: list[Row], chance: random.Random) -> None:
    marked: list[Row] = [(("first", number), *row) for number, row in enumerate(rows)]
    assert compare_in_place(table(marked), table(chance.sample(marked, len(marked))), None).equal
    assert not compare_in_place(table(marked), table([row[::-1] for row in marked]), None).equal


@unhurried
@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30, unique=True), st.data())
def test_one_changed_number_is_seen(values: list[int], data: st.DataObject) -> None:
    gold: list[Row] = [(Decimal(value), Decimal(2 * value)) for value in values]
    row, column = data.draw(st.integers(0, len(gold) - 1)), data.draw(st.integers(0, 1))
    off = data.draw(st.sampled_from([Decimal("0.0051"), Decimal("-0.0051"), Decimal(1), Decimal(-300)]))
    changed = [list(cells) for cells in gold]
    changed[row][column] = Decimal(values[row] * (column + 1)) + off
    assert not equal(gold, [tuple(cells) for cells in changed])


@unhurried
@given(st.permutations(range(6)))
def test_two_columns_paired_otherwise_are_seen_though_each_holds_the_same_numbers(order: list[int]) -> None:
    gold: list[Row] = [(Decimal(k), Decimal(10 * k)) for k in range(6)]
    candidate: list[Row] = [(Decimal(k), Decimal(10 * other)) for k, other in enumerate(order)]
    assert equal(gold, candidate) is (order == sorted(order))


def test_the_kinds_of_difference_from_near_to_far() -> None:
    gold = table([(Decimal(1), "a"), (Decimal(2), "b")])
    far = {
        Difference.ROW_ORDER: table([(Decimal(2), "b"), (Decimal(1), "a")]),
        Difference.VALUES: table([(Decimal(2), "a"), (Decimal(1), "b")]),
        Difference.COLUMN_COUNT: table([(Decimal(1),), (Decimal(2),)]),
        Difference.ROW_COUNT: table([(Decimal(1), "a")]),
    }
    for profile in (compare, compare_in_place):
        assert [profile(gold, other, [0, 1]).difference for other in far.values()] == list(far)


def test_arrays_and_json_are_compared_number_by_number() -> None:
    numbers, documents = decoder(1231), decoder(3802)
    gold: list[Row] = [(numbers(f"{{{k}.001,{k}.5}}"), documents(f'{{"v": {k}.002}}'), "same") for k in range(1, 51)]
    close: list[Row] = [(documents(f'{{"v": {k}}}'), "same", numbers(f"{{{k},{k}.502}}")) for k in range(1, 51)]
    assert equal(gold, close[::-1])
    swapped = [(close[k - 1][0], *row[1:]) for k, row in enumerate(close)]
    assert not equal(gold, swapped)
    long = decoder(1231)("{" + ",".join(map(str, range(200_000))) + "}")
    assert equal([(long,)], [(long,)])


def test_hard_results_of_20_columns_and_1000_rows_are_compared_in_time() -> None:
    """A generous bound for slow machines; `benchmarks/comparison_speed.py` prints the real times."""
    hard = ("all within 1 and 2", "columns of the same numbers", "columns nearly alike", "one-hot", "half cents apart")
    for case in cases(hard):
        started = time.process_time()
        found = compare(case.gold, case.candidate, None).equal
        assert time.process_time() - started < 2, case.name
        assert case.same in (None, found), case.name
