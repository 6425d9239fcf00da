"""The greedy choice."""

from hypothesis import given
from hypothesis import strategies as st

from services.verifier.suites.selection import Candidate, Choice, choose

CANDIDATES = st.lists(
    st.builds(Candidate, st.frozensets(st.integers(0, 12)), st.integers(0, 3)),
    max_size=8,
)


@given(CANDIDATES, st.integers(1, 5))
def test_each_choice_kills_most_of_what_is_alive_and_none_is_idle(candidates: list[Candidate], at_most: int) -> None:
    dead: set[int] = set()
    chosen = choose(candidates, at_most)
    for choice in chosen:
        assert choice.kills == len(candidates[choice.index].kills - dead) > 0
        assert choice.kills == max(len(candidate.kills - dead) for candidate in candidates)
        dead |= candidates[choice.index].kills
    assert len(chosen) <= at_most
    if len(chosen) < at_most:
        assert dead == set().union(*(candidate.kills for candidate in candidates))


def test_of_equals_the_one_with_more_golds_then_the_first() -> None:
    equal = frozenset({1, 2})
    assert choose([Candidate(equal, 1), Candidate(equal, 2), Candidate(equal, 2)], 3) == [Choice(1, 2)]
