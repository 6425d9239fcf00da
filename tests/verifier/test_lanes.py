"""Slots and lanes: order kept, no barging, no lane holds everything, an abandoned lane begins nothing more."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from services.verifier.lanes import Abandoned, Lane, Slots

WAIT_SECONDS = 10


@pytest.fixture
def helpers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def eventually(holds: "threading.Event") -> None:
    assert holds.wait(WAIT_SECONDS)


def test_distinct_tasks_run_once_and_answers_keep_their_order(helpers: ThreadPoolExecutor) -> None:
    lane = Lane(Slots(4), helpers, share=2)
    ran: list[int] = []

    def square(number: int) -> int:
        ran.append(number)
        return number**2

    with lane:
        assert list(lane.map(square, [3, 1, 3, 2, 1]).items()) == [(3, 9), (1, 1), (2, 4)]
        assert sorted(ran) == [1, 2, 3]
        assert lane.map(square, []) == {}


def test_a_lane_alone_uses_its_share_and_no_more(helpers: ThreadPoolExecutor) -> None:
    lane = Lane(Slots(4), helpers, share=3)
    together = threading.Barrier(3)  # breaks unless three tasks run at once
    running, most = 0, 0
    guard = threading.Lock()

    def work(number: int) -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        together.wait(WAIT_SECONDS)
        with guard:
            running -= 1

    with lane:
        lane.map(work, range(6))
    assert most == 3


def test_a_slot_goes_to_whoever_waits_longest() -> None:
    slots, order = Slots(1), []

    def wait_for_turn(number: int) -> None:
        slots.acquire()
        order.append(number)
        slots.release()

    threads = [threading.Thread(target=wait_for_turn, args=(number,)) for number in range(3)]
    slots.acquire()
    for number, thread in enumerate(threads):
        thread.start()
        while slots.waiting() <= number:
            time.sleep(0.001)
    slots.release()
    wait_for_turn(3)  # queued behind the three
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]
    assert (slots.free(), slots.waiting()) == (1, 0)


def test_a_batch_of_slow_tasks_lets_others_in_after_one_of_them(helpers: ThreadPoolExecutor) -> None:
    slots = Slots(1)
    release, started, finished = threading.Event(), threading.Event(), []

    def slow(number: int) -> None:
        started.set()
        eventually(release)
        time.sleep(0.03)  # longer than a turn
        finished.append(f"slow {number}")

    def in_a_lane(work: Callable[[Any], None], tasks: Iterable[object]) -> None:
        with Lane(slots, helpers, 1) as lane:
            lane.map(work, tasks)

    batch = threading.Thread(target=in_a_lane, args=(slow, range(3)))
    batch.start()
    eventually(started)
    other = threading.Thread(target=in_a_lane, args=(finished.append, ["quick"]))
    other.start()
    while not slots.waiting():
        time.sleep(0.001)
    release.set()
    batch.join()
    other.join()
    assert finished == ["slow 0", "quick", "slow 1", "slow 2"]


def test_an_abandoned_lane_begins_nothing_more(helpers: ThreadPoolExecutor) -> None:
    slots, ran = Slots(2), []
    lane = Lane(slots, helpers, share=2)

    def work(number: int) -> None:
        ran.append(number)
        lane.abandon()

    with pytest.raises(Abandoned), lane:
        lane.map(work, range(100))
    assert len(ran) <= 2
    with pytest.raises(Abandoned), lane:
        pytest.fail("it was abandoned while it waited")
    assert slots.free() == 2


def test_an_error_ends_the_batch_and_frees_the_slots(helpers: ThreadPoolExecutor) -> None:
    slots, ran = Slots(4), []

    def work(number: int) -> None:
        ran.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError), Lane(slots, helpers, share=4) as lane:
        lane.map(work, range(100))
    assert len(ran) <= 4
    assert slots.free() == 4


def test_callers_whose_helpers_wait_for_a_slot_do_not_block_each_other(helpers: ThreadPoolExecutor) -> None:
    slots = Slots(2)

    def batch() -> int:
        with Lane(slots, helpers, share=4) as lane:
            return len(lane.map(lambda _: time.sleep(0.001), range(20)))

    with ThreadPoolExecutor(8) as callers:
        assert [call.result(WAIT_SECONDS) for call in [callers.submit(batch) for _ in range(8)]] == [20] * 8
    assert (slots.free(), slots.waiting()) == (2, 0)
