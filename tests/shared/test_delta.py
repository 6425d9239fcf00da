"""Paired deltas: verdicts on constructed sides, and what must hold for any."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.contracts.measuring import DeltaVerdict
from shared.delta import METRICS, Side, TaskCounts, differences, paired_delta

K = 4


def counts(passed: int, scored: int = K, slices: tuple[str, ...] = (), tokens: float = 10.0) -> TaskCounts:
    return TaskCounts(scored=scored, passed=passed, no_sql=0, sql_error=0, rows=K, cut=0, tokens=tokens, slices=slices)


def side(passed: list[int]) -> dict[str, TaskCounts]:
    return {f"t{number:04}": counts(c) for number, c in enumerate(passed)}


def asked_twice(rates: list[float], seed: int) -> dict[str, TaskCounts]:
    draw = random.Random(seed)
    return side([sum(draw.random() < rate for _ in range(K)) for rate in rates])


def test_every_task_up_is_more_reliable_when_each_passed_once_before() -> None:
    delta = paired_delta(side([1] * 50), side([3] * 50), K, seed=0)
    assert delta.verdict is DeltaVerdict.MOVED
    assert delta.sentence.startswith("More reliable, not more capable")
    assert (delta.lines[0].before, delta.lines[0].after, delta.lines[0].delta.value) == (0.25, 0.75, 0.5)
    assert delta.gained == sorted(side([1] * 50))
    assert delta.lost == []


def test_solving_what_was_never_solved_is_more_capable() -> None:
    delta = paired_delta(side([0, 0, 2, 2] * 20), side([1, 2, 2, 2] * 20), K, seed=0)
    assert delta.verdict is DeltaVerdict.MOVED
    assert delta.sentence.startswith("More capable (pass@4 +0.500")


def test_pass_at_1_at_pass_at_k_is_at_its_ceiling() -> None:
    delta = paired_delta(side([1] * 40 + [0] * 10), side([4] * 40 + [0] * 10), K, seed=0)
    assert "and at its ceiling" in delta.sentence


def test_every_task_down_moved_the_wrong_way() -> None:
    delta = paired_delta(side([3] * 50), side([1] * 50), K, seed=0)
    assert delta.verdict is DeltaVerdict.MOVED_THE_WRONG_WAY
    assert delta.sentence.startswith("Worse: pass@1 went from 0.750 to 0.250 (-0.500")
    assert len(delta.lost) == 50


def test_a_gain_no_larger_than_asking_again_gives_is_within_noise() -> None:
    # seven tasks in a hundred half a point up, none down: the interval over tasks excludes 0, the re-run band does not
    before = side([2] * 100)
    after = side([4] * 7 + [2] * 93)
    delta = paired_delta(before, after, K, seed=0)
    assert delta.lines[0].delta.low > 0
    assert delta.verdict is DeltaVerdict.WITHIN_EVAL_NOISE


def test_five_pairs_are_insufficient_and_six_are_read() -> None:
    assert paired_delta(side([0] * 5), side([4] * 5), K, 0).verdict is DeltaVerdict.INSUFFICIENT_DATA
    assert paired_delta(side([0] * 6), side([4] * 6), K, 0).verdict is DeltaVerdict.MOVED
    assert paired_delta({}, {}, K, 0).verdict is DeltaVerdict.INSUFFICIENT_DATA


def test_a_task_without_a_scored_row_leaves_the_comparison_and_is_no_failure() -> None:
    before, after = side([2] * 20), side([2] * 20)
    after["t0000"] = counts(0, scored=0)
    delta = paired_delta(before, after, K, seed=0)
    assert delta.lines[0].tasks == 19
    assert delta.lines[0].delta.value == 0.0


def test_tasks_short_of_k_are_in_pass_at_1_and_not_in_pass_at_k() -> None:
    before, after = side([2] * 20), side([2] * 20)
    after["t0000"] = counts(1, scored=2)
    lines = {line.metric: line.tasks for line in paired_delta(before, after, K, seed=0).lines}
    assert (lines["pass@1"], lines["pass@k"], lines["pass^k"]) == (20, 19, 19)


def test_slices_are_read_for_pass_at_1() -> None:
    before = {f"t{n}": counts(1, slices=("difficulty=easy" if n < 10 else "difficulty=hard",)) for n in range(20)}
    after = {f"t{n}": counts(3 if n < 10 else 1, slices=()) for n in range(20)}
    lines = {line.slice: line.delta.value for line in paired_delta(before, after, K, 0).lines if line.slice != "all"}
    assert lines == {"difficulty=easy": 0.5, "difficulty=hard": 0.0}


def test_an_unchanged_policy_asked_twice_is_called_moved_in_few_of_many_pairs() -> None:
    rates = [random.Random(task).betavariate(0.6, 0.6) for task in range(120)]
    moved = {DeltaVerdict.MOVED, DeltaVerdict.MOVED_THE_WRONG_WAY}
    verdicts = [paired_delta(asked_twice(rates, 2 * n), asked_twice(rates, 2 * n + 1), K, n).verdict for n in range(60)]
    assert sum(verdict in moved for verdict in verdicts) <= 8  # 5 % expected: above 8 of 60 has a chance of 0.4 %


@pytest.mark.parametrize("field", sorted(Side.__dataclass_fields__))
def test_any_difference_in_how_the_sides_were_asked_is_named(field: str) -> None:
    values = {
        "prompt_hash": "p",
        "task_set_digest": "t",
        "k": 4,
        "temperature": 0.7,
        "top_p": 0.95,
        "max_tokens": 64,
        "regime": "{}",
        "domain": "shop",
        "bundle_digest": "d",
        "profile": "standard",
    }
    same = Side(**values)  # type: ignore[arg-type]  # of the fields' own types
    other = Side(**{**values, field: "other"})  # type: ignore[arg-type]
    assert differences(same, same) == []
    assert [difference.split(":")[0] for difference in differences(same, other)] == [field]


PASSED = st.lists(st.integers(0, K), min_size=1, max_size=30)


@settings(deadline=None, max_examples=40)
@given(before=PASSED, after=PASSED, seed=st.integers(0, 99))
def test_swapping_the_sides_negates_the_change(before: list[int], after: list[int], seed: int) -> None:
    there, back = (paired_delta(side(a), side(b), K, seed) for a, b in ((before, after), (after, before)))
    for one, other in zip(there.lines, back.lines, strict=True):
        assert one.delta.value == pytest.approx(-other.delta.value)
        assert one.p_value == other.p_value
        assert (one.before, one.after) == (other.after, other.before)
    assert (there.gained, there.lost) == (back.lost, back.gained)
    assert there.detectable_effect == pytest.approx(back.detectable_effect)


@settings(deadline=None, max_examples=40)
@given(before=PASSED, after=PASSED)
def test_the_change_is_the_difference_of_the_means_and_lies_in_its_interval(
    before: list[int], after: list[int]
) -> None:
    for line in paired_delta(side(before), side(after), K, 0).lines:
        assert line.metric in METRICS
        assert line.delta.value == pytest.approx(line.after - line.before)
        assert line.delta.low - 1e-9 <= line.delta.value <= line.delta.high + 1e-9
        assert 0 < line.p_value <= 1


@settings(deadline=None, max_examples=25)
@given(passed=st.lists(st.integers(0, K), min_size=6, max_size=30))
def test_equal_sides_never_change(passed: list[int]) -> None:
    delta = paired_delta(side(passed), side(passed), K, 0)
    assert delta.verdict is DeltaVerdict.NO_CHANGE_DETECTED
    assert {line.delta.value for line in delta.lines} == {0.0}
