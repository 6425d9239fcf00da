"""Reports, bands and the sides of a delta, from the facts of rows. Pure."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.rollout.samplings.records import PlannedTask, RowFacts, SamplingRecord
from shared.contracts.measuring import Band, BandRequest, Report, ReportLine
from shared.contracts.rollout import Purpose, SamplingState
from shared.contracts.tasks import Split
from shared.contracts.verifier import FinishReason, Status
from shared.delta import Side, TaskCounts
from shared.errors import Conflict, Invalid
from shared.statistics import bootstrap_mean, detectable_effect, noise_deviation, pass_at_k, pass_hat_k


@dataclass(frozen=True)
class TaskRows:
    """A task and the facts of its rows."""

    task: PlannedTask
    rows: tuple[RowFacts, ...]

    @property
    def scored(self) -> list[RowFacts]:
        """Rows with a verdict on the reply."""
        return [row for row in self.rows if row.status != Status.UNSCORABLE]

    @property
    def passed(self) -> int:
        """Rows that matched."""
        return sum(row.status == Status.MATCH for row in self.rows)

    @property
    def slices(self) -> tuple[str, ...]:
        """The parts of a report it falls into."""
        task = self.task
        return (f"difficulty={task.difficulty}", f"archetype={task.archetype}", f"style={task.style}")


def by_task(tasks: Sequence[PlannedTask], facts: Sequence[RowFacts]) -> list[TaskRows]:
    """Rows grouped, in the sampling's order of tasks; tasks without rows too."""
    rows: dict[str, list[RowFacts]] = defaultdict(list)
    for fact in facts:
        rows[fact.task_id].append(fact)
    return [TaskRows(task, tuple(rows[task.task_id])) for task in tasks]


def report(record: SamplingRecord, groups: Sequence[TaskRows]) -> Report:
    """All tasks first, then each slice. Right at any time. Raises Conflict before the first full group."""
    parameters = record.request.parameters
    ended = record.state not in (SamplingState.RUNNING, SamplingState.PAUSED)
    overall = report_line("all", groups, parameters.k, ended)
    if overall is None:
        raise Conflict(f"sampling {record.sampling_id!r} has no task with {parameters.k} scored samples yet")
    names = sorted({name for group in groups for name in group.slices}, key=_slice_order)
    parts = (report_line(name, [g for g in groups if name in g.slices], parameters.k, ended) for name in names)
    return Report(
        sampling_id=record.sampling_id,
        policy=record.request.policy,
        adapter_digest=record.policy.adapter_digest,
        k=parameters.k,
        temperature=parameters.temperature,
        profile=record.request.profile,
        state=record.state,
        lines=[overall, *(part for part in parts if part is not None)],
    )


def _slice_order(name: str) -> tuple[int, str]:
    kind, _, value = name.partition("=")
    difficulty = {"easy": "0", "medium": "1", "hard": "2"}
    return ["difficulty", "archetype", "style"].index(kind), difficulty.get(value, value)


def report_line(name: str, groups: Sequence[TaskRows], k: int, ended: bool) -> ReportLine | None:
    """One slice's figures; None while no task of it has k scored samples (pass@k is not defined then).

    pass@1 is the mean over tasks with a scored sample, pass@k and pass^k over tasks with k of them. Statuses are shares
    of scored rows; cut and thought of all rows. A task without a row is short once the sampling has ended.
    """
    counted = [(len(group.scored), group.passed) for group in groups if group.scored]
    full = [(scored, passed) for scored, passed in counted if scored >= k]
    if not full:
        return None
    rows = [row for group in groups for row in group.rows]
    scored = [row for group in groups for row in group.scored]
    statuses = Counter(row.status for row in scored)
    classes = Counter(row.sqlstate_class for row in scored if row.status == Status.SQL_ERROR)
    due = [group for group in groups if ended or group.rows]
    rates = [passed / n for n, passed in counted]
    at_1, at_k = bootstrap_mean(rates), bootstrap_mean([pass_at_k(n, c, k) for n, c in full])
    return ReportLine(
        slice=name,
        asked=len(groups),
        tasks=len(counted),
        rows=len(rows),
        unscorable=len(rows) - len(scored),
        pass_at_1=at_1,
        pass_at_k=at_k,
        pass_hat_k=bootstrap_mean([pass_hat_k(n, c, k) for n, c in full]),
        headroom=at_k.value - at_1.value,
        no_sql=statuses[Status.NO_SQL] / len(scored),
        sql_error=statuses[Status.SQL_ERROR] / len(scored),
        sql_error_classes={name: count / len(scored) for name, count in sorted(classes.items())},
        mismatch=statuses[Status.MISMATCH] / len(scored),
        refused=statuses[Status.REFUSED] / len(scored),
        timeout=statuses[Status.TIMEOUT] / len(scored),
        cut=statistics.fmean(row.finish_reason == FinishReason.LENGTH for row in rows),
        thought=statistics.fmean(row.thought for row in rows),
        distinct=statistics.fmean(
            len({row.reply_digest for row in group.rows}) / len(group.rows) for group in groups if group.rows
        ),
        median_tokens=statistics.median(row.tokens for row in rows),
        median_sample_ms=statistics.median(row.sample_ms for row in rows),
        short_tasks=sum(len(group.scored) < k for group in due),
        pass_at_1_short_failed=statistics.fmean(group.passed / max(k, len(group.scored)) for group in due),
        detectable_effect=min(1.0, detectable_effect(noise_deviation(rates, max(1, k - 1)), len(counted))),
    )


def cut_band(
    request: BandRequest, record: SamplingRecord, groups: Sequence[TaskRows], previous: Band | None = None
) -> Band:
    """The train tasks whose raw pass rate lies in [low, high], beside the domain's last band. Raises Conflict, Invalid.

    Raw: a rate over the samples drawn, without any smoothing, so that 0 and 1 mean that no sample differed.
    """
    if record.state is not SamplingState.DONE or record.request.purpose is Purpose.BATCH:
        raise Conflict(
            f"sampling {record.sampling_id!r} is {record.state} ({record.landed} of {record.wanted} rows): a band is "
            "cut from one that is done"
        )
    if record.request.endpoint is not None:
        raise Conflict(
            f"sampling {record.sampling_id!r} is of {record.request.policy}, which cannot be trained here: a band is "
            "cut on the policy that will be"
        )
    if any(group.task.split != Split.TRAIN for group in groups):
        raise Invalid(f"sampling {record.sampling_id!r} asked holdout tasks: a band is cut from train tasks only")
    rates = {group.task.task_id: group.passed / len(group.scored) for group in groups if group.scored}
    inside = [task_id for task_id, rate in rates.items() if request.low <= rate <= request.high]
    below = sum(rate < request.low for rate in rates.values())
    above = sum(rate > request.high for rate in rates.values())
    if not inside:
        raise Invalid(
            f"no task passes at a rate in [{request.low}, {request.high}]: {below} lie below, {above} above. "
            "Widen the band, or sample more tasks"
        )
    return Band(
        band_id=request.band_id,
        sampling_id=record.sampling_id,
        domain=record.request.domain,
        policy=record.request.policy,
        adapter_digest=record.policy.adapter_digest,
        low=request.low,
        high=request.high,
        task_ids=inside,
        considered=len(rates),
        below=below,
        above=above,
        previous=None if previous is None else previous.band_id,
        shared=0 if previous is None else len(set(inside) & set(previous.task_ids)),
        previous_size=0 if previous is None else len(previous.task_ids),
        warnings=_band_warnings(request, record),
    )


def _band_warnings(request: BandRequest, record: SamplingRecord) -> list[str]:
    policy = record.request.policy
    if policy == request.for_policy:
        return []
    return [
        f"cut on {policy}, to be trained from {request.for_policy}: what one policy solves now and then another may "
        f"always or never solve, and such prompts teach nothing. Sample the train split with {request.for_policy}"
    ]


def side_of(record: SamplingRecord) -> Side:
    """What a delta compares before it compares figures."""
    parameters = record.request.parameters
    return Side(
        prompt_hash=record.prompt_hash,
        task_set_digest=record.task_set_digest,
        k=parameters.k,
        temperature=parameters.temperature,
        top_p=parameters.top_p,
        max_tokens=parameters.max_tokens,
        regime=record.request.regime.model_dump_json(),
        domain=record.request.domain,
        bundle_digest=record.bundle_digest,
        profile=record.request.profile,
    )


def task_counts(groups: Sequence[TaskRows]) -> Mapping[str, TaskCounts]:
    """Counts of each task that has rows, for `shared.delta.paired_delta`."""
    return {
        group.task.task_id: TaskCounts(
            scored=len(group.scored),
            passed=group.passed,
            no_sql=sum(row.status == Status.NO_SQL for row in group.rows),
            sql_error=sum(row.status == Status.SQL_ERROR for row in group.rows),
            rows=len(group.rows),
            cut=sum(row.finish_reason == FinishReason.LENGTH for row in group.rows),
            tokens=statistics.fmean(row.tokens for row in group.rows),
            slices=group.slices,
        )
        for group in groups
        if group.rows
    }
