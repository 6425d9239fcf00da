"""Kept outcomes: once for whoever asks at the same time, bounded by memory that is really taken."""

import gc
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.verifier.decoded import DecodedRows
from services.verifier.execution import Failure, Outcome
from services.verifier.results import Key, Results, Source, held_bytes

NUMERIC, TEXT = 1700, 25


def outcome(rows: int = 1, reason: str = "", failure: Failure | None = None, salt: str = "") -> Outcome:
    texts = [(f"{salt}{number}", f"{number}.25") for number in range(rows)]
    values = DecodedRows(texts, [TEXT, NUMERIC])
    size = sum(len(cell) for row in texts for cell in row)
    return Outcome(
        columns=("a", "b"),
        rows=values,
        texts=texts,
        oids=[TEXT, NUMERIC],
        size_bytes=size,
        failure=failure,
        reason=reason,
    )


def key(sql: str) -> Key:
    return ("data", "main", sql)


def test_a_kept_outcome_is_not_computed_again() -> None:
    results = Results(10**6)
    first, source = results.once(key("q"), outcome)
    assert source is Source.RUN
    assert results.once(key("q"), pytest.fail) == (first, Source.HIT)
    assert results.kept(key("q")) is first
    assert results.kept(("other rows", "main", "q")) is None


def test_many_that_ask_at_once_share_one_run() -> None:
    results, runs = Results(10**6), []
    asked = threading.Semaphore(0)
    release = threading.Event()

    def slow() -> Outcome:
        runs.append(1)
        assert release.wait(10)
        return outcome()

    def ask(_: int) -> tuple[Outcome, Source]:
        asked.release()
        return results.once(key("q"), slow)

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, number) for number in range(8)]
        for _ in range(8):
            asked.acquire()
        time.sleep(0.05)  # from "about to ask" to asking
        release.set()
        sources = sorted(answer.result()[1] for answer in answers)
    assert len(runs) == 1
    assert sources == [Source.JOINED] * 7 + [Source.RUN]


def test_another_sandboxs_failure_is_not_shared_and_none_is_kept() -> None:
    results = Results(10**6)
    inside, release = threading.Event(), threading.Event()

    def broken() -> Outcome:
        inside.set()
        assert release.wait(10)
        return outcome(0, "gone", Failure.INFRASTRUCTURE)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(results.once, key("q"), broken)
        assert inside.wait(10)
        second = pool.submit(results.once, key("q"), outcome)
        release.set()
        assert first.result()[0].failure is Failure.INFRASTRUCTURE
        assert second.result()[0].failure is None
    for failure in (Failure.INFRASTRUCTURE, Failure.TIMEOUT):
        results.once(key("failing"), lambda failure=failure: outcome(0, "", failure))
        assert results.kept(key("failing")) is None
    assert results.once(key("wrong"), lambda: outcome(0, "no column", Failure.SQL_ERROR))[1] is Source.RUN
    assert results.kept(key("wrong")) is not None


def test_an_error_of_ours_reaches_all_who_asked_and_is_not_kept() -> None:
    results = Results(10**6)

    def bug() -> Outcome:
        raise RuntimeError("bug")

    with pytest.raises(RuntimeError):
        results.once(key("q"), bug)
    assert results.once(key("q"), outcome)[1] is Source.RUN


def test_the_least_recently_used_goes_first_and_memory_stays_below_the_bound() -> None:
    one = held_bytes("q0", outcome())
    results = Results(3 * one)
    for number in range(3):
        results.once(key(f"q{number}"), outcome)
    results.once(key("q0"), pytest.fail)
    results.once(key("q3"), outcome)
    assert [results.kept(key(f"q{number}")) is not None for number in range(4)] == [True, False, True, True]
    assert results.size_bytes() == 3 * one
    results.once(key("large"), lambda: outcome(10_000))
    assert results.size_bytes() == 0  # larger than the bound itself


def test_the_estimate_is_above_the_memory_that_an_outcome_takes() -> None:
    for rows in (0, 1, 20, 200):
        gc.collect()
        tracemalloc.start()
        made = [outcome(rows, salt=f"text {number} ") for number in range(50)]
        for each in made:
            list(each.rows)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        estimated = sum(held_bytes("SELECT 1", each) for each in made)
        assert taken < estimated < 4 * taken + 50 * 1_000, rows
