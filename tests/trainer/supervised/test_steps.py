"""Which examples a step learns from."""

from collections import Counter
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from services.trainer.small_policy.examples import Example
from services.trainer.supervised.steps import step_tasks


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    per_step=st.integers(1, 20),
    steps=st.integers(1, 12),
    seed=st.integers(0, 5),
)
def test_steps_hold_distinct_examples_by_length_in_even_passes_and_a_longer_run_begins_alike(
    lengths: list[int], per_step: int, steps: int, seed: int
) -> None:
    kept = {f"t{number}": Example([1], [2] * length) for number, length in enumerate(lengths)}
    per_step = min(per_step, len(kept))
    found = step_tasks(kept, per_step, steps, seed)
    for step in found:
        assert len(set(step)) == len(step) == per_step
        assert [kept[task].tokens for task in step] == sorted(kept[task].tokens for task in step)
    counts = Counter(dict.fromkeys(kept, 0) | Counter(chain.from_iterable(found)))
    assert max(counts.values()) - min(counts.values()) <= 2, "a step that ends a pass may begin the next"
    assert step_tasks(kept, per_step, steps + 1, seed)[:-1] == found, "so that a resumed run goes on with it"
