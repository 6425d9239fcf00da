"""Reports, bands and deltas over HTTP, checked against figures computed here from the rows themselves."""

from pathlib import Path
from statistics import fmean, median

import psycopg
import pytest

from shared.auth import read_token
from shared.clients.base import ServiceProblem
from shared.clients.rollout import RolloutClient
from shared.contracts.measuring import BandRequest, DeltaRequest, DeltaVerdict
from shared.contracts.rollout import SamplingParameters
from shared.contracts.tasks import PrivilegedTask, Split
from shared.contracts.verifier import Status
from shared.ids import task_id
from tests.rollout.conftest import TASKS, Coordinator
from tests.rollout.scripted import Script, make_task
from tests.rollout.test_samplings import K, all_rows, ended, request


async def sample(client: RolloutClient, sampling_id: str, **changes: object) -> None:
    await client.start(request(sampling_id, **changes))
    await ended(client, sampling_id)


async def test_a_report_is_what_the_rows_say(coordinator: Coordinator, script: Script) -> None:
    async with coordinator.client() as client:
        await sample(client, "one")
        report = await client.report("one")
        rows = await all_rows(client, "one")
    passed = {task.id: 0 for task in script.tasks if task.split is Split.HOLDOUT}
    for row in rows:
        passed[row.task_id] += row.status is Status.MATCH
    line = report.lines[0]
    assert (line.slice, line.tasks, line.rows, line.unscorable, line.short_tasks) == ("all", TASKS, TASKS * K, 0, 0)
    assert line.asked == TASKS
    assert line.pass_at_1_short_failed == line.pass_at_1.value
    assert line.median_sample_ms == pytest.approx(median(row.sample_ms for row in rows))
    assert line.pass_at_1.value == pytest.approx(fmean(c / K for c in passed.values()))
    assert line.pass_at_k.value == pytest.approx(fmean(c > 0 for c in passed.values()))
    assert line.pass_hat_k.value == pytest.approx(fmean(c == K for c in passed.values()))
    assert line.headroom == pytest.approx(line.pass_at_k.value - line.pass_at_1.value)
    assert line.mismatch == pytest.approx(1 - line.pass_at_1.value)
    assert line.pass_at_1.low < line.pass_at_1.value < line.pass_at_1.high
    easy = {task.id for task in script.tasks if task.difficulty == "easy"} & passed.keys()
    slices = {line.slice: line for line in report.lines}
    assert slices["difficulty=easy"].pass_at_1.value == pytest.approx(fmean(passed[t] / K for t in easy))
    assert sum(line.tasks for name, line in slices.items() if name.startswith("archetype=")) == TASKS
    assert {name for name in slices if name.startswith("style=")} == {"style=polite", "style=terse"}


async def test_unscorable_rows_are_counted_and_never_a_failure(coordinator: Coordinator, script: Script) -> None:
    tasks = [make_task(500 + number, right=K, broken=number == 0) for number in range(8)]
    script.tasks += tasks
    async with coordinator.client() as client:
        await sample(client, "one", task_ids=[task.id for task in tasks])
        line = (await client.report("one")).lines[0]
    assert (line.asked, line.tasks, line.rows, line.unscorable, line.short_tasks) == (8, 7, 8 * K, K, 1)
    assert (line.pass_at_1.value, line.pass_at_1_short_failed) == (1.0, 7 / 8)


async def test_sql_errors_are_told_by_the_class_of_their_code(coordinator: Coordinator, script: Script) -> None:
    tasks = [asked_as(make_task(600 + n, right=K), "faulty" if n < 2 else "") for n in range(8)]
    script.tasks += tasks
    async with coordinator.client() as client:
        await sample(client, "one", task_ids=[task.id for task in tasks])
        line = (await client.report("one")).lines[0]
        rows = await all_rows(client, "one")
    assert (line.sql_error, line.sql_error_classes) == (0.25, {"42": 0.25})
    assert {row.sqlstate for row in rows if row.status is Status.SQL_ERROR} == {"42703"}


def asked_as(task: PrivilegedTask, word: str) -> PrivilegedTask:
    question = f"{word} {task.question}"
    return task.model_copy(update={"question": question, "id": task_id(question)})


async def test_a_report_before_the_first_row_is_a_conflict_that_says_so(
    coordinator: Coordinator, script: Script
) -> None:
    script.engine_up = False
    async with coordinator.client() as client:
        await client.start(request("one"))
        with pytest.raises(ServiceProblem, match="scored samples yet") as early:
            await client.report("one")
        with pytest.raises(ServiceProblem, match="no sampling") as unknown:
            await client.report("two")
        await client.cancel("one")
    assert (early.value.problem.status, unknown.value.problem.status) == (409, 404)


async def test_a_band_holds_the_train_tasks_between_and_the_same_id_answers_it_again(
    coordinator: Coordinator, script: Script
) -> None:
    rates = {t.id: int(t.question.split()[-2]) / K for t in script.tasks if t.split is Split.TRAIN}
    asked = BandRequest(band_id="b", sampling_id="one", low=0.25, high=0.75)
    async with coordinator.client() as client:
        await sample(client, "one", split=Split.TRAIN)
        band = await client.cut_band(asked)
        assert await client.cut_band(asked) == band == await client.band("b")
        with pytest.raises(ServiceProblem, match="another body"):
            await client.cut_band(asked.model_copy(update={"low": 0.1}))
        with pytest.raises(ServiceProblem, match="Widen the band"):
            await client.cut_band(BandRequest(band_id="c", sampling_id="one", low=0.3, high=0.4))
    assert set(band.task_ids) == {task_id for task_id, rate in rates.items() if 0.25 <= rate <= 0.75}
    assert (band.below, band.above) == (sum(r < 0.25 for r in rates.values()), sum(r > 0.75 for r in rates.values()))
    assert band.considered == TASKS
    assert (band.policy, band.adapter_digest) == ("base", "base")
    assert (band.previous, band.shared, band.warnings) == (None, 0, [])


async def test_a_band_tells_its_overlap_with_the_last_one_and_warns_of_another_policy(
    coordinator: Coordinator,
) -> None:
    async with coordinator.client() as client:
        await sample(client, "one", split=Split.TRAIN)
        wide = await client.cut_band(BandRequest(band_id="wide", sampling_id="one", low=0.2, high=0.8))
        asked = BandRequest(band_id="narrow", sampling_id="one", low=0.4, high=0.6, for_policy="night@40")
        narrow = await client.cut_band(asked)
        assert await client.cut_band(asked) == narrow  # the second call is no band of its own
    assert set(narrow.task_ids) < set(wide.task_ids)
    assert (narrow.previous, narrow.previous_size) == ("wide", len(wide.task_ids))
    assert narrow.shared == len(narrow.task_ids)
    assert "cut on base, to be trained from night@40" in narrow.warnings[0]


async def test_no_band_is_cut_from_holdout_tasks_or_from_a_part_of_a_sampling(
    coordinator: Coordinator, script: Script
) -> None:
    async with coordinator.client() as client:
        await sample(client, "holdout")
        with pytest.raises(ServiceProblem, match="train tasks only"):
            await client.cut_band(BandRequest(band_id="b", sampling_id="holdout"))
        script.engine_up = False
        await client.start(request("part", split=Split.TRAIN))
        with pytest.raises(ServiceProblem, match="from one that is done"):
            await client.cut_band(BandRequest(band_id="b", sampling_id="part"))
        with pytest.raises(ServiceProblem, match="no band"):
            await client.band("b")
        await client.cancel("part")


async def test_base_against_base_shows_no_change_and_other_sampling_parameters_are_not_comparable(
    coordinator: Coordinator,
) -> None:
    async with coordinator.client() as client:
        await sample(client, "a")
        await sample(client, "b", parameters=SamplingParameters(k=K, max_tokens=64, seed=1))
        await sample(client, "hot", parameters=SamplingParameters(k=K, max_tokens=64, temperature=1.0))
        await sample(client, "fewer", limit=8)
        control = await client.delta(DeltaRequest(before=["a"], after=["b"]))
        hot = await client.delta(DeltaRequest(before=["a"], after=["hot"]))
        fewer = await client.delta(DeltaRequest(before=["a"], after=["fewer"]))
    assert control.verdict is DeltaVerdict.NO_CHANGE_DETECTED
    assert (control.lines[0].slice, control.lines[0].metric, control.lines[0].tasks) == ("all", "pass@1", TASKS)
    assert hot.verdict is DeltaVerdict.NOT_COMPARABLE
    assert hot.differences == ["temperature: 0.7 before, 1.0 after"]
    assert fewer.verdict is DeltaVerdict.NOT_COMPARABLE
    assert [difference.split(":")[0] for difference in fewer.differences] == ["task_set_digest"]


async def test_repeats_of_a_side_are_pooled_and_a_policy_stands_for_its_newest_evaluation(
    coordinator: Coordinator,
) -> None:
    async with coordinator.client() as client:
        for seed, name in enumerate(("a", "b", "c", "d")):
            await sample(client, name, parameters=SamplingParameters(k=K, max_tokens=64, seed=seed))
        both = await client.delta(DeltaRequest(before=["a", "b"], after=["c", "d"]))
        named = await client.delta(DeltaRequest(before=["a"], after=["base"]))
        with pytest.raises(ServiceProblem, match="no finished evaluation of a policy"):
            await client.delta(DeltaRequest(before=["a"], after=["run@3"]))
        with pytest.raises(ServiceProblem, match="no finished evaluation on other of a policy"):
            await client.delta(DeltaRequest(before=["a"], after=["base"], domain="other"))
    assert (both.before, both.after, both.repeats) == (["a", "b"], ["c", "d"], 2)
    assert both.verdict is DeltaVerdict.NO_CHANGE_DETECTED
    assert (named.before, named.after) == (["a"], ["d"])


async def test_tasks_that_flipped_come_with_a_row_that_shows_why(coordinator: Coordinator, script: Script) -> None:
    """The engine's right replies follow the question, so a run whose questions changed flips its tasks."""
    tasks = [make_task(700 + number, right=K) for number in range(8)]
    script.tasks += tasks
    ids = [task.id for task in tasks]
    async with coordinator.client() as client:
        await sample(client, "good", task_ids=ids)
        script.right_at_most = 0
        await sample(client, "bad", task_ids=ids, parameters=SamplingParameters(k=K, max_tokens=64, seed=1))
        down = await client.delta(DeltaRequest(before=["good"], after=["bad"]))
        up = await client.delta(DeltaRequest(before=["bad"], after=["good"]))
        rows = {row.row_id: row for row in await all_rows(client, "bad")}
    assert (down.verdict, up.verdict) == (DeltaVerdict.MOVED_THE_WRONG_WAY, DeltaVerdict.MOVED)
    assert [flip.task_id for flip in down.flips] == down.lost == up.gained == sorted(ids)
    for flip in (*down.flips, *up.flips):
        assert {flip.before, flip.after} == {0.0, 1.0}
        assert rows[flip.row_id or 0].task_id == flip.task_id
        assert rows[flip.row_id or 0].status is Status.MISMATCH


async def test_verdicts_that_rest_on_other_seeds_are_not_comparable(coordinator: Coordinator, control_db: str) -> None:
    async with coordinator.client() as client:
        await sample(client, "a")
        with psycopg.connect(control_db) as connection:
            connection.execute("UPDATE rollout.samplings SET bundle_digest = 'other' WHERE sampling_id = 'a'")
        await sample(client, "b", parameters=SamplingParameters(k=K, max_tokens=64, seed=1))
        found = await client.delta(DeltaRequest(before=["a"], after=["b"]))
    assert found.verdict is DeltaVerdict.NOT_COMPARABLE
    assert [difference.split(":")[0] for difference in found.differences] == ["bundle_digest"]


async def test_a_sampling_cannot_be_compared_with_itself() -> None:
    with pytest.raises(ValueError, match="named twice"):
        DeltaRequest(before=["a"], after=["b", "a"])


async def test_a_withdrawn_sampling_keeps_its_rows_and_is_in_no_figure(coordinator: Coordinator) -> None:
    async with coordinator.client() as client:
        await sample(client, "good")
        await sample(client, "bad", parameters=SamplingParameters(k=K, max_tokens=64, seed=1))
        voided = await client.void("bad", "the engine served another model")
        with pytest.raises(ServiceProblem, match="withdrawn: the engine served another model") as refused:
            await client.report("bad")
        with pytest.raises(ServiceProblem, match="withdrawn"):
            await client.delta(DeltaRequest(before=["good"], after=["bad"]))
        listed = (await client.samplings()).samplings
        rows = await all_rows(client, "bad")
    assert refused.value.problem.status == 409
    assert voided.void_reason == "the engine served another model"
    assert [(found.sampling_id, found.void_reason is None) for found in listed] == [("bad", False), ("good", True)]
    assert len(rows) == TASKS * K


async def test_a_row_is_replayed_with_both_results_for_those_who_may_see_the_gold(
    coordinator: Coordinator, script: Script, tokens: Path
) -> None:
    async with coordinator.client() as client:
        await sample(client, "one")
        wrong = next(row for row in await all_rows(client, "one") if row.status is Status.MISMATCH)
        with pytest.raises(ServiceProblem) as refused:
            await client.replay(wrong.row_id)
    sandboxes = set(script.sandboxes)
    async with RolloutClient(coordinator.url, read_token(tokens, "admin")) as admin:
        found = await admin.replay(wrong.row_id)
        with pytest.raises(ServiceProblem, match="no row") as unknown:
            await admin.replay(wrong.row_id + 10_000)
    assert (found.sampling_id, found.task_id, found.recorded) == ("one", wrong.task_id, Status.MISMATCH)
    assert found.verdict.status is Status.MISMATCH
    assert found.explanation is not None
    assert found.explanation.difference == f"scripted for {wrong.sql}"
    assert script.sandboxes == sandboxes
    assert (refused.value.problem.status, unknown.value.problem.status) == (403, 404)


async def test_the_same_constant_for_every_task_is_scanned_as_reward_hacking(coordinator: Coordinator) -> None:
    async with coordinator.client() as client:
        await sample(client, "one")
        found = await client.scan("one")
        rows = await all_rows(client, "one")
    right = [row.row_id for row in rows if row.reward == 1]
    assert found.rewarded == len(right) > 0
    assert {finding.kind for finding in found.findings} == {"no_table", "one_for_many"}
    assert {finding.row_id for finding in found.findings} == set(right)
