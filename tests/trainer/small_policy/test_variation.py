"""Varied literals: question and gold change together, and never onto the other side of the split."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from services.trainer.small_policy.variation import Pair, Variation
from shared.contracts.tasks import Split
from shared.ids import fold_of, gold_key, split_of
from shared.sql import normalise

PAIRS = [
    Pair("List ships above 120 tons.", "SELECT ship_id FROM ships WHERE tons > 120"),
    Pair("Count ships flagged Malta.", "SELECT count(*) FROM ships WHERE flag = 'Malta'"),
    Pair("Count ships flagged Norway or Panama.", "SELECT count(*) FROM ships WHERE flag IN ('Norway', 'Panama')"),
    Pair(
        "Ships built since 2023-04-01, per year.", "SELECT built, 1 FROM ships WHERE built >= '2023-04-01' GROUP BY 1"
    ),
]
FLAGS = ("Malta", "Norway", "Panama", "Chile", "Japan", "Spain", "Greece", "Cyprus")
VARIATION = Variation([*PAIRS, *(Pair(flag, f"SELECT 1 FROM ships WHERE flag = '{flag}'") for flag in FLAGS)])


@given(st.sampled_from(PAIRS), st.integers(0, 10_000))
@settings(deadline=None)
def test_a_varied_gold_is_never_a_holdout_gold_nor_one_of_the_other_fold(pair: Pair, seed: int) -> None:
    varied = VARIATION.draw(pair, Random(seed))
    key = normalise(varied.gold)
    assert varied == pair or (split_of(key) is Split.TRAIN and fold_of(gold_key(key)) == 0)


@given(st.integers(0, 10_000))
@settings(deadline=None)
def test_question_and_gold_get_the_same_number(seed: int) -> None:
    varied = VARIATION.draw(PAIRS[0], Random(seed))
    number = varied.gold.rpartition(" ")[2]
    assert varied.question == f"List ships above {number} tons."
    assert number.endswith("0")  # round numbers stay round


def test_values_come_from_the_same_column_and_the_form_stays() -> None:
    drawn = {VARIATION.draw(PAIRS[1], Random(seed)).question for seed in range(60)}
    assert len(drawn) > 1
    assert drawn <= {f"Count ships flagged {flag}." for flag in FLAGS}
    dated = {VARIATION.draw(PAIRS[3], Random(seed)) for seed in range(60)}
    assert len(dated) > 1
    for pair in dated:
        date = pair.question.removeprefix("Ships built since ").removesuffix(", per year.")
        assert pair.gold == f"SELECT built, 1 FROM ships WHERE built >= '{date}' GROUP BY 1"


def test_two_values_never_become_one() -> None:
    for seed in range(60):
        gold = VARIATION.draw(PAIRS[2], Random(seed)).gold
        first, second = gold.partition("IN (")[2].rstrip(")").split(", ")
        assert first != second


def test_a_pair_without_literals_stays() -> None:
    bare = Pair("How many ships are there?", "SELECT count(*) FROM ships")
    assert Variation([bare]).draw(bare, Random(0)) == bare
