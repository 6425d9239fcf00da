"""The pure rules: re-rolls, pauses, pace, policies, which tasks are asked, the figures of a report."""

from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rollout.measuring.report import by_task, report_line
from services.rollout.samplings.pace import WINDOW_SECONDS, Pace
from services.rollout.samplings.patience import (
    LONGEST_WAIT_SECONDS,
    OUTAGES,
    TIMEOUT_RETRIES,
    WINDOW_MINIMUM,
    FailureWindow,
    RetryRule,
)
from services.rollout.samplings.policies import resolve
from services.rollout.samplings.records import PlannedTask, Policy, RowFacts
from services.rollout.samplings.tasks import task_set_digest
from services.rollout.worker.groups import PERMANENT, FailureReason
from shared.contracts.inference import Adapter, AdapterKind, AdapterList, AdapterState
from shared.contracts.verifier import FinishReason, Status
from shared.errors import Conflict
from shared.ids import BASE_DIGEST
from shared.statistics import pass_at_k, pass_hat_k
from tests.rollout.scripted import make_task


def test_waits_double_up_to_the_longest_and_end_after_the_retries() -> None:
    rule = RetryRule(retries=6, first_wait_seconds=1.0)
    waits = [rule.wait_seconds(FailureReason.ENGINE_ERROR, failures) for failures in range(1, 8)]
    assert waits == [1, 2, 4, 8, 16, LONGEST_WAIT_SECONDS, None]
    assert rule.wait_seconds(FailureReason.TIMEOUT, TIMEOUT_RETRIES) is not None
    assert rule.wait_seconds(FailureReason.TIMEOUT, TIMEOUT_RETRIES + 1) is None


@given(st.sampled_from(FailureReason), st.integers(0, 50), st.integers(0, 10), st.integers(0, 20))
def test_a_permanent_failure_is_given_up_and_a_failure_in_a_pause_only_after_many(
    reason: FailureReason, failures: int, retries: int, outages: int
) -> None:
    wait = RetryRule(retries, 0.5).wait_seconds(reason, failures, outages)
    allowed = min(retries, TIMEOUT_RETRIES) if reason is FailureReason.TIMEOUT else retries
    assert (wait is None) == (reason in PERMANENT or failures > allowed or outages > OUTAGES)
    assert wait is None or 0 < wait <= LONGEST_WAIT_SECONDS


@given(st.lists(st.booleans(), max_size=60))
def test_the_window_trips_on_half_of_the_last_twenty(outcomes: list[bool]) -> None:
    window = FailureWindow()
    for failed in outcomes:
        window.record(failed)
    last = outcomes[-20:]
    assert window.tripped() == (len(last) >= WINDOW_MINIMUM and sum(last) * 2 >= len(last))
    window.reset()
    assert not window.tripped()


def test_pace_is_over_the_last_half_minute() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    for _ in range(10):
        now += 1.0
        pace.add(rows=4, tokens=100)
    assert pace.rates() == (4.0, 100.0)
    now += WINDOW_SECONDS + 1
    assert pace.rates() == (0.0, 0.0)


def adapter(step: int, digest: str, state: AdapterState) -> Adapter:
    return Adapter(
        name=f"night-s{step}-{digest[:8]}",
        run_id="night",
        step=step,
        uri="",
        base="b",
        digest=digest,
        kind=AdapterKind.TRAINED,
        state=state,
    )


def test_a_policy_is_the_newest_ready_adapter_of_its_step() -> None:
    served = AdapterList(
        base="small",
        adapters=[
            adapter(3, "c" * 64, AdapterState.UNLOADED),
            adapter(3, "b" * 64, AdapterState.READY),
            adapter(3, "a" * 64, AdapterState.READY),
            adapter(2, "d" * 64, AdapterState.REFUSED),
        ],
    )
    assert resolve("base", served) == Policy("small", BASE_DIGEST)
    assert resolve("night@3", served) == Policy("night-s3-bbbbbbbb", "b" * 64)
    with pytest.raises(Conflict) as refused:
        resolve("night@2", served)
    assert "is refused" in refused.value.detail
    assert "sqlclimb serve night@2" in refused.value.detail
    with pytest.raises(Conflict) as never:
        resolve("night@7", served)
    assert "was never published" in never.value.detail


def test_a_task_set_digest_depends_on_ids_and_golds_and_not_on_order() -> None:
    one, two = make_task(1, 1), make_task(2, 2)
    other = two.model_copy(update={"privileged": one.privileged.model_copy(update={"reference": "SELECT 2"})})
    assert task_set_digest([one, two]) == task_set_digest([two, one])
    assert len({task_set_digest([one]), task_set_digest([one, two]), task_set_digest([one, other])}) == 3


def facts(task_id: str, statuses: list[Status]) -> list[RowFacts]:
    return [
        RowFacts(
            task_id=task_id,
            status=status,
            finish_reason=FinishReason.LENGTH if n == 0 else FinishReason.STOP,
            reply_digest=f"{n % 2}",
            thought=n == 0,
            tokens=10 + n,
            row_id=n,
            sqlstate=["42601", "42P01", "22012", None][n % 4],
            sample_ms=100.0 * n,
        )
        for n, status in enumerate(statuses)
    ]


def planned(number: int) -> PlannedTask:
    return PlannedTask(f"t{number}", "q", "window", "easy", "terse", "train")


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(Status), min_size=4, max_size=4), min_size=1, max_size=12))
def test_a_report_line_counts_only_scored_rows(statuses: list[list[Status]]) -> None:
    k = 2
    tasks = [planned(number) for number in range(len(statuses))]
    rows = [fact for number, group in enumerate(statuses) for fact in facts(f"t{number}", group)]
    line = report_line("all", by_task(tasks, rows), k, ended=True)
    counted = [
        (sum(s is not Status.UNSCORABLE for s in group), sum(s is Status.MATCH for s in group)) for group in statuses
    ]
    full = [(n, c) for n, c in counted if n >= k]
    if not full:
        assert line is None
        return
    assert line is not None
    scored = sum(n for n, _ in counted)
    assert (line.rows, line.unscorable) == (4 * len(statuses), 4 * len(statuses) - scored)
    assert line.tasks == sum(n > 0 for n, _ in counted)
    assert line.short_tasks == sum(n < k for n, _ in counted)
    assert line.pass_at_1.value == pytest.approx(fmean(c / n for n, c in counted if n))
    assert line.pass_at_k.value == pytest.approx(fmean(pass_at_k(n, c, k) for n, c in full))
    assert line.pass_hat_k.value == pytest.approx(fmean(pass_hat_k(n, c, k) for n, c in full))
    shares = line.no_sql + line.sql_error + line.mismatch + line.refused + line.timeout
    assert shares == pytest.approx(1 - sum(c for _, c in counted) / scored)
    assert (line.cut, line.thought, line.distinct, line.median_tokens) == (0.25, 0.25, 0.5, 11.5)
    assert line.median_sample_ms == 150.0
    assert line.sql_error == pytest.approx(sum(line.sql_error_classes.values()))
    assert set(line.sql_error_classes) <= {"42", "22", "unknown"}
    assert line.pass_at_1_short_failed == pytest.approx(fmean(c / max(n, k) for n, c in counted))
    assert 0 <= line.detectable_effect <= 1
