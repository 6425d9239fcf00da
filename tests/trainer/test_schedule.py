"""Which prompts a step trains on."""

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.schedule import prompt_batches, remaining_batches, step_seed

bands = st.integers(1, 40).map(lambda size: [f"t{number}" for number in range(size)])


@given(band=bands, data=st.data(), seed=st.integers(0, 5))
def test_no_step_holds_a_prompt_twice_and_passes_are_whole(band: list[str], data: st.DataObject, seed: int) -> None:
    per_step = data.draw(st.integers(1, len(band)))
    batches = list(islice(prompt_batches(band, per_step, seed), 3 * len(band)))
    assert all(len(set(batch)) == per_step for batch in batches)
    drawn = [task for batch in batches for task in batch]
    for start in range(0, len(drawn) - len(band) + 1, len(band)):
        assert sorted(drawn[start : start + len(band)]) == sorted(band), "each pass holds every task once"


@given(band=bands, seed=st.integers(0, 5), done=st.integers(0, 12))
def test_a_resumed_run_draws_what_the_unbroken_one_would(band: list[str], seed: int, done: int) -> None:
    per_step = max(1, len(band) // 3)
    whole = remaining_batches(band, per_step, seed, 0, 12)
    assert remaining_batches(list(reversed(band)), per_step, seed, done, 12) == whole[done:]


def test_seeds_give_other_orders_and_each_step_another_sampling_seed() -> None:
    band = [f"t{number}" for number in range(30)]
    assert remaining_batches(band, 10, 0, 0, 3) != remaining_batches(band, 10, 1, 0, 3)
    seeds = Counter(step_seed(seed, step) for seed in range(3) for step in range(1, 50))
    assert max(seeds.values()) == 1 and all(0 <= seed < 2**31 for seed in seeds)


def test_a_band_smaller_than_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="holds 3 tasks, a step takes 4"):
        remaining_batches(["a", "b", "c", "c"], 4, 0, 0, 1)
