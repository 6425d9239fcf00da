"""Which prompts a step trains on."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from services.trainer.job.schedule import Place, Prompts, step_seed

bands = st.integers(1, 40).map(lambda size: [f"t{number}" for number in range(size)])


@settings(deadline=None)
@given(band=bands, data=st.data(), seed=st.integers(0, 5))
def test_no_step_holds_a_prompt_twice_and_passes_are_whole(band: list[str], data: st.DataObject, seed: int) -> None:
    per_step = data.draw(st.integers(1, len(band)))
    prompts = Prompts(band, seed)
    batches = [prompts.take(per_step) for _ in range(3 * len(band))]
    assert all(len(set(batch)) == per_step for batch in batches)
    drawn = [task for batch in batches for task in batch]
    for start in range(0, len(drawn) - len(band) + 1, len(band)):
        counted = Counter(drawn[: start + len(band)])
        assert max(counted.values()) - min(counted[task] for task in band) <= 1, "no task laps another"


@settings(deadline=None)
@given(band=bands, takes=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12), data=st.data())
def test_a_resume_needs_only_the_place(band: list[str], takes: list[tuple[int, int]], data: st.DataObject) -> None:
    """Each step takes its own prompts, then refills that it does not hold yet; cut anywhere, the rest is the same."""

    def steps(prompts: Prompts, sizes: list[tuple[int, int]]) -> list[list[str]]:
        taken = []
        for own, refill in sizes:
            first = prompts.take(own)
            taken.append(first + prompts.take(refill, held=first))
        return taken

    cut = data.draw(st.integers(0, len(takes)))
    whole = steps(Prompts(band, 3), takes)
    before = Prompts(band, 3)
    steps(before, takes[:cut])
    saved = Place(before.place.passes, before.place.waiting)
    assert steps(Prompts(list(reversed(band)), 3, saved), takes[cut:]) == whole[cut:]
    assert all(len(set(step)) == len(step) for step in whole), "a step never holds a prompt twice"


def test_a_refill_takes_what_the_step_does_not_hold_until_the_band_is_used_up() -> None:
    prompts = Prompts(["a", "b", "c"], 0)
    first = prompts.take(2)
    assert sorted(first + prompts.take(5, held=first)) == ["a", "b", "c"]
    assert prompts.take(1, held=["a", "b", "c"]) == []
    assert sorted(prompts.take(3)) == ["a", "b", "c"], "the next pass"


def test_seeds_give_other_orders_and_each_step_another_sampling_seed() -> None:
    band = [f"t{number}" for number in range(30)]
    assert Prompts(band, 0).take(30) != Prompts(band, 1).take(30)
    prompts = Prompts(band, 0)
    assert prompts.take(30) != prompts.take(30)
    seeds = Counter(step_seed(seed, step) for seed in range(3) for step in range(1, 50))
    assert max(seeds.values()) == 1 and all(0 <= seed < 2**31 for seed in seeds)
